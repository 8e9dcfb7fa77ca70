package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/parts"
)

// Exit is a status that a command ends with.
type Exit struct {
	// Status is a number, or a sum of 128 and a signal's number.
	Status  string
	Meaning string
}

// CommandReference is a command in the table of commands, for docs/commands.md.
type CommandReference struct {
	// Path is how it is called, with the program's name; Use the same with its arguments.
	Path, Use string
	// Short is a line, Long and Example are texts; the latter two may be "".
	Short, Long, Example string
	// Flags are its own, without the configuration's keys.
	Flags []FlagReference
	// Exits are the statuses that mean more than with every command.
	Exits []Exit
}

// FlagReference is a flag of a command.
type FlagReference struct {
	// Name is written with its dashes, and its short form.
	Name, Value, Default, Meaning string
}

// Exits are the meanings of the statuses of every command.
func Exits() []Exit {
	return []Exit{
		{"0", "done"},
		{fmt.Sprint(exitRuntime), "something failed while it ran; stderr says what, and what to do"},
		{fmt.Sprint(exitUsage), "wrong usage: an unknown command or flag, a wrong argument. Nothing was started."},
		{fmt.Sprint(exitConfig), "wrong configuration: every fault is listed with its key and where it came from. Nothing was started."},
		{"130", "interrupted by Ctrl-C (128 and SIGINT's number) before it was done"},
		{"143", "ended by SIGTERM (128 and SIGTERM's number) before it was done"},
	}
}

// exitsOf are the statuses of a command that mean more than with every command.
func exitsOf(path string) []Exit {
	ended := Exit{"0", "done, or ended in order by SIGTERM: what it held is given back or kept"}
	switch path {
	case "weir up":
		return []Exit{{"130, 143", "stopped before the training was done: the same command goes on from the newest checkpoint"}}
	case "weir trainer":
		return []Exit{ended, {"130", "Ctrl-C cut the training short: the same command goes on"}}
	case "weir broker", "weir producer", "weir inference":
		return []Exit{ended}
	case "weir audit":
		return []Exit{
			{"0", "every trajectory and prompt of the record is accounted for"},
			{"1", "it is not, or there is no record: a line names each fault"},
		}
	case "weir healthcheck":
		return []Exit{{"0", "the role is ready"}, {"1", "it is not, and the answer says why, or nobody answers"}}
	case "weir doctor":
		return []Exit{{"0", "the configuration can be run here, warnings or not"}, {"1", "a line says fail"}}
	case "weir tool":
		return []Exit{{"1", "the call failed, as the machinery's fault or the tool's answer"}}
	}
	return nil
}

// Reference is the table of commands, in the order of their paths.
func Reference(doors parts.Registry) []CommandReference {
	a := &app{doors: doors, console: console{out: io.Discard, err: io.Discard}}
	root := a.rootCommand()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var out []CommandReference
	everyCommand(root, func(cmd *cobra.Command) {
		if cmd != root && cmd.IsAvailableCommand() && cmd.Name() != "help" {
			out = append(out, a.referenceOf(cmd))
		}
	})
	slices.SortFunc(out, func(x, y CommandReference) int { return strings.Compare(x.Path, y.Path) })
	return out
}

func (a *app) referenceOf(cmd *cobra.Command) CommandReference {
	out := CommandReference{
		Path: cmd.CommandPath(), Use: strings.TrimSuffix(cmd.UseLine(), " [flags]"), Short: cmd.Short, Long: strings.TrimSpace(cmd.Long), Example: cmd.Example,
		Exits: exitsOf(cmd.CommandPath()),
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || a.keys().isKey(f) {
			return
		}
		value, meaning := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		preset := f.DefValue
		if f.Value.Type() == "bool" || preset == "[]" {
			preset = ""
		}
		out.Flags = append(out.Flags, FlagReference{name, value, preset, meaning})
	})
	return out
}
