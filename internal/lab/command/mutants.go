package command

import (
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/lab/mutants"
)

func (l *lab) mutantsCommand() *cobra.Command {
	c := mutants.Default()
	c.Out = l.out
	cmd := &cobra.Command{
		Use: "mutants", Short: "Change the core in small ways and print the changes that no test notices", Args: cobra.NoArgs,
		Long: `Mutants changes the sources of a target, a change at a time, runs the target's tests and prints the changes that no test
notices. Nothing is written into the tree: each mutant is compiled by an overlay. mutants/README.md lists the survivors.`,
		Example: "  weir-lab mutants --target batch -n 100\n  weir-lab mutants --target batch --at rows.go:110,ledger.go:62",
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Dir, "dir", ".", "the module whose sources are changed")
	flags.StringVar(&c.Target, "target", "", "the only target: admission, batch, checkpoint, loss, lease or feed; empty means all of them")
	flags.IntVarP(&c.N, "mutants", "n", c.N, "mutants a target; 0 means every one")
	flags.StringVar(&c.At, "at", "", "only the mutants of these lines, all of them: file:line, with commas between")
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "draws the mutants")
	flags.DurationVar(&c.Patience, "timeout", c.Patience, "how long the tests of a mutant may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return mutants.Run(cmd.Context(), c) }
	return cmd
}
