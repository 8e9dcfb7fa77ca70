package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Look at the configuration"}
	cmd.AddCommand(newShowCommand(a), newExplainCommand(a), newCheckCommand(a))
	return cmd
}

// originOf is a key of config show --origins or --changed as JSON.
type originOf struct {
	Key     string `json:"key"`
	Value   any    `json:"value"`
	Default any    `json:"default"`
	From    string `json:"from"`
}

func newShowCommand(a *app) *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Print the resolved configuration", Args: cobra.NoArgs,
		Example: "  weir config show --trainer.eta 8\n  weir config show --origins\n  weir config show --changed --config run.yaml",
	}
	withOrigins := show.Flags().Bool("origins", false, "print each key with where its value came from")
	changed := show.Flags().Bool("changed", false, "print only the keys whose value is not the default, with where it came from")
	format := outputFlag(show)
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, origins, err := a.loadConfig(cmd)
		if err != nil {
			return err
		}
		values := config.Values(cfg)
		switch {
		case *changed:
			differ := config.Changed(cfg)
			maps.DeleteFunc(values, func(key string, _ any) bool { return !differ[key] })
			return a.printOrigins(format, cfg, values, origins, true)
		case *withOrigins:
			return a.printOrigins(format, cfg, values, origins, false)
		case format.isJSON():
			return a.printJSON(values)
		}
		text, err := config.YAML(cfg)
		if err != nil {
			return err
		}
		_, err = a.out.Write(text)
		return err
	}
	return show
}

// printOrigins prints a line for each key: its value, where that came from, and if asked for the default.
func (w *console) printOrigins(format *outputFormat, cfg *config.Config, values map[string]any, origins map[string]string, beside bool) (err error) {
	defaults := cfg.Defaults()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		from, note := cmp.Or(origins[key], "default"), ""
		if beside {
			note = ", default " + config.Shown(defaults[key])
		}
		if format.isJSON() {
			err = w.printJSON(originOf{key, values[key], defaults[key], from})
		} else {
			_, err = fmt.Fprintf(w.out, "%s = %v  (%s%s)\n", key, values[key], from, note)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newCheckCommand lists the faults of a configuration without running anything.
// setsTraining reports whether a source sets a key that says what is trained, or how.
func setsTraining(origins map[string]string) bool {
	for key := range origins {
		switch section, _, _ := strings.Cut(key, "."); section {
		case "tasks", "model", "trainer":
			return true
		}
	}
	return false
}

func newCheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Say whether the configuration, and the data it names, is valid", Args: cobra.NoArgs,
		Example: "  weir config check --config run.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			c, err := assembly.OpenTasks(cmd.Context(), a.doors, cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }() // sandboxes that do not close end with this process
			for _, line := range assembly.UnreadLines(cfg, origins) {
				if _, err := fmt.Fprintln(a.out, line); err != nil {
					return err
				}
			}
			var notes []string
			if !setsTraining(origins) {
				notes = append(notes, "note: no key of tasks, model or trainer is set: this is the demonstration")
			}
			if follows := cfg.FolderDefaults(); follows != "" {
				notes = append(notes, "note: "+follows)
			}
			for _, line := range append(c.FewQuestions(), assembly.FewPlaces(cfg, cfg.Run.Producers, true)...) {
				notes = append(notes, "warning: "+line)
			}
			for _, line := range notes {
				if _, err := fmt.Fprintln(a.out, line); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(a.out, "valid: task %s with %d words, advantage %s, loss %s\n",
				c.Names(), c.Tokenizer.Size(), cfg.Trainer.Advantage.Name, cfg.Trainer.Loss.Name)
			return err
		},
	}
}
