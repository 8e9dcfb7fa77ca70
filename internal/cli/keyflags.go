package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
)

// keyFlags makes a flag of every key, completed with the values that the key takes.
func (a *app) keyFlags(root *cobra.Command) {
	flags, values := root.PersistentFlags(), config.Values(a.keys().known)
	maps.Copy(values, a.keys().known.Others())
	add := func(name, like string) {
		if open, ok := strings.CutSuffix(like, ".*"); ok {
			flags.StringToString(strings.TrimSuffix(name, ".*"), nil, firstSentence(a.keys().briefMeaning(open)))
			return
		}
		flags.String(name, "", firstSentence(a.keys().briefMeaning(like)))
		if _, isBool := values[like].(bool); isBool {
			flags.Lookup(name).NoOptDefVal = "true"
		}
	}
	flags.String(sectionTasks, "", "names of tasks to train on, with commas between, each as if its section were there")
	for _, key := range a.keys().names {
		add(key, key)
		if strings.HasSuffix(key, ".*") {
			continue
		}
		complete := func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return a.keys().completeValue(key, begun)
		}
		if key == "run.name" {
			complete = a.completeRuns
		}
		if err := root.RegisterFlagCompletionFunc(key, complete); err != nil {
			panic(err) // the flag was made above
		}
	}
	for _, key := range a.keys().ownKeys() {
		if flags.Lookup(key) == nil {
			add(key, a.keys().likeOwn(key))
		}
	}
}

// sectionTasks is the section of the tasks, and the flag that lists them.
const sectionTasks = "tasks"

// completeRuns gives the runs in run.dir.
func (a *app) completeRuns(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	dir := a.keys().known.Run.Dir
	if cfg, _, err := a.loadConfig(cmd); err == nil {
		dir = cfg.Run.Dir
	}
	folders, err := filepath.Glob(filepath.Join(dir, "*", assembly.ConfigFile))
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
		{"tasks", "NAME.type", "NAME.weight", "NAME.agent", "NAME.tools", "NAME.reward.type"},
		{"model", "engine", "folder", "hidden", "layers", "max_positions"},
		{"native", "recompute"},
		{"torch", "python", "ranks", "device", "recompute"},
		{"trainer", "steps", "batch_groups", "group_size", "eta", "advantage.name", "loss.name", "cold_start.steps"},
		{"inference", "slots", "swap", "openai.listen"},
		{"producer", "concurrency"},
		{"toolworker", "sessions", "calls", "idle"},
		{"agents", "NAME.type"},
		{"tools", "NAME.type", "NAME.on", "NAME.timeout"},
		{"broker", "url", "listen"},
		{"streams", "replicas", "max_trajectories"},
		{"weights", "dir"},
		{"eval", "every", "questions"},
		{"log", "level"},
		{"telemetry", "listen"},
		{"tracing", "endpoint", "sample"},
		{"sandbox", "tier", "memory"},
		{"view", "listen"},
		{"records", "tensorboard"},
	}
}

// helpOfKeys puts the sections of the configuration into the help of every command that reads it, in place of a flag for
// each key.
func (a *app) helpOfKeys(root *cobra.Command) {
	everyCommand(root, func(cmd *cobra.Command) { cmd.Long = narrowText(cmd.Long) })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", page)))
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		keys := root.PersistentFlags()
		hide := func(hidden bool) {
			keys.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden && a.keys().isKey(f) })
		}
		hide(true) // for the time of this text alone: completion skips hidden flags
		help(cmd, args)
		hide(false)
		writeKeyHelp(cmd.OutOrStdout(), len(a.keys().names), readBy(cmd))
	})
}

// readBy are the sections that a role reads, all for weir itself, up and config, and none for the other commands.
func readBy(cmd *cobra.Command) func(section string) bool {
	every := []string{"run", "broker", "log", "telemetry"}
	own := map[string][]string{
		"weir broker":    {"streams"},
		"weir producer":  {"producer", "services", "tasks", "agents", "tools", "tracing"},
		"weir tools":     {"toolworker", "services", "tasks", "agents", "tools"},
		"weir inference": {"inference", "weights", "tasks", "torch"},
		"weir trainer":   {"trainer", "model", "tasks", "weights", "eval", "native", "torch", "tracing"},
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

// narrowText wraps a text's paragraphs to a page; a paragraph that begins with a space, a table or an example, is left as it is.
func narrowText(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && p != "" {
			paragraphs[i] = wrapText(p, "")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
