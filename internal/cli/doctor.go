package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/doctor"
)

func newDoctorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look whether this machine has what the configuration needs", Args: cobra.NoArgs,
		Long: `Doctor looks at Python, PyTorch, CUDA, its devices and NCCL, memory, vLLM, SGLang, the disk, shared memory, the sandbox,
the broker and the clock, and prints a line for each: what it found and, where something is wrong, what to do. It asks
for what the configuration names: what that does not need and is not there is "unused".

It ends with 0 where the configuration can be run, warnings or not, with 1 where a line says "fail", with 2 on wrong
arguments and with 3 on a configuration that is at fault.`,
		Example: "  weir doctor\n  weir doctor --config run.yaml -o json",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		needs, err := assembly.MachineNeeds(s.Config)
		if err != nil {
			return err
		}
		lines := doctor.Examine(cmd.Context(), doctor.Local{Environ: func(name string) string { return environVariable(a.environ, name) }, Ask: s.Connector().AskBroker}, needs)
		for i := range lines {
			if lines[i].Check == "sandbox" {
				lines[i] = assembly.ExamineSandbox(cmd.Context(), s.Config)
			}
		}
		if line, ok := assembly.ExamineBucket(s.Config); ok {
			lines = append(lines, line)
		}
		failed := doctor.Failed(lines)
		if format.isJSON() {
			err = a.printJSON(struct {
				OK     bool          `json:"ok"`
				Checks []doctor.Line `json:"checks"`
			}{!failed, lines})
		} else {
			err = printLines(a.out, lines)
		}
		if err == nil && failed {
			err = &statusError{exitRuntime, errSaid}
		}
		return err
	}
	return cmd
}

// printLines prints the lines for people, a remedy under its line.
func printLines(w io.Writer, lines []doctor.Line) error {
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "%-6s  %-14s  %s\n", l.Verdict, l.Check, l.Detail)
		if l.Remedy != "" {
			fmt.Fprintf(&out, "%-6s  %-14s  -> %s\n", "", "", l.Remedy)
		}
	}
	_, err := fmt.Fprint(w, out.String())
	return err
}
