package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/config"
)

// keyFlags makes a flag of every key, completed with the values that the key takes.
func (a *app) keyFlags(root *cobra.Command) {
	flags, values := root.PersistentFlags(), config.Values(config.Default())
	for _, key := range config.Keys(config.Default()) {
		if open, ok := strings.CutSuffix(key, ".*"); ok {
			flags.StringToString(open, nil, sentence(brief(open)))
			continue
		}
		flags.String(key, "", sentence(brief(key)))
		if _, isBool := values[key].(bool); isBool {
			flags.Lookup(key).NoOptDefVal = "true"
		}
		complete := func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return completeValue(key, begun)
		}
		if key == "run.name" {
			complete = a.completeRuns
		}
		if err := root.RegisterFlagCompletionFunc(key, complete); err != nil {
			panic(err) // the flag was made above
		}
	}
}

// isKey says whether a flag is a key's.
func isKey(f *pflag.Flag) bool { return config.Meaning(f.Name) != "" }

// completeValue gives the values that a key takes, or leaves a key that names a file or folder to the shell.
func completeValue(key, begun string) ([]string, cobra.ShellCompDirective) {
	e, err := config.Explain(key)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if e.Choices == nil {
		if e.Type == "string" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(e.Choices, func(v string) bool { return !strings.HasPrefix(v, begun) }), cobra.ShellCompDirectiveNoFileComp
}

// completeRuns gives the runs in run.dir.
func (a *app) completeRuns(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	dir := config.Default().Run.Dir
	if cfg, _, err := a.load(cmd); err == nil {
		dir = cfg.Run.Dir
	}
	folders, err := filepath.Glob(filepath.Join(dir, "*", configFile))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var runs []string
	for _, file := range folders {
		if name := filepath.Base(filepath.Dir(file)); strings.HasPrefix(name, begun) {
			runs = append(runs, name)
		}
	}
	return runs, cobra.ShellCompDirectiveNoFileComp
}

// usedKeys are the sections of the configuration in a reader's order, each with the keys that most users set.
func usedKeys() [][]string {
	return [][]string{
		{"run", "name", "dir", "seed"},
		{"task", "name", "corpus", "questions", "demonstrations"},
		{"model", "folder", "hidden", "layers", "max_positions"},
		{"trainer", "steps", "batch_groups", "group_size", "eta", "advantage.name", "loss.name", "cold_start.steps"},
		{"inference", "slots", "swap", "openai.listen"},
		{"producer", "concurrency"},
		{"agent", "max_invalid"},
		{"broker", "url", "listen"},
		{"streams", "replicas", "max_trajectories"},
		{"weights", "dir"},
		{"eval", "every", "questions"},
		{"log", "level"},
		{"telemetry", "listen"},
	}
}

// helpOfKeys puts the sections of the configuration into the help of every command that reads it, in place of a flag for
// each key.
func helpOfKeys(root *cobra.Command) {
	everyCommand(root, func(cmd *cobra.Command) { cmd.Long = narrow(cmd.Long) })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", page)))
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		keys := root.PersistentFlags()
		hide := func(hidden bool) {
			keys.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden && isKey(f) })
		}
		hide(true) // for the time of this text alone: completion passes over what is hidden
		help(cmd, args)
		hide(false)
		writeKeyHelp(cmd.OutOrStdout(), len(config.Keys(config.Default())), readBy(cmd))
	})
}

// readBy are the sections that a role reads, all for weir itself, up and config, and none for the other commands.
func readBy(cmd *cobra.Command) func(section string) bool {
	every := []string{"run", "broker", "log", "telemetry"}
	own := map[string][]string{
		"weir broker":    {"streams"},
		"weir producer":  {"producer", "task", "agent"},
		"weir inference": {"inference", "weights", "task"},
		"weir trainer":   {"trainer", "model", "task", "weights", "eval"},
	}
	sections, isRole := own[cmd.CommandPath()]
	all := slices.Contains([]string{"weir", "weir up", "weir config", "weir config show"}, cmd.CommandPath())
	return func(section string) bool {
		return all || isRole && (slices.Contains(every, section) || slices.Contains(sections, section))
	}
}

func writeKeyHelp(w io.Writer, count int, reads func(section string) bool) {
	var b strings.Builder
	used := slices.DeleteFunc(usedKeys(), func(section []string) bool { return !reads(section[0]) })
	if len(used) == 0 {
		fmt.Fprintf(&b, "\nThe %d configuration keys are flags too: weir config explain lists them.\n", count)
	} else {
		fmt.Fprintf(&b, "\nConfiguration: %d keys, each a flag. The most used of each section:\n", count)
	}
	for _, section := range used {
		head := fmt.Sprintf("  %-10s ", section[0])
		line := head
		for i, key := range section[1:] {
			key = section[0] + "." + key
			if i < len(section)-2 {
				key += ","
			}
			if len(line)+1+len(key) > page {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
				line = strings.Repeat(" ", len(head))
			}
			line += " " + key
		}
		b.WriteString(line + "\n")
	}
	if len(used) > 0 {
		b.WriteString("\nweir config explain SECTION lists its keys, weir config explain KEY says all\nof one.\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
	}
}

// completeWith completes a flag with fixed values.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was made before
	}
}

// everyCommand calls do for a command and all below it.
func everyCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, below := range cmd.Commands() {
		everyCommand(below, do)
	}
}

// narrow wraps a text's paragraphs to a page; one that begins with a space, a table or an example, is left as it is.
func narrow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && p != "" {
			paragraphs[i] = wrapped(p, "")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
