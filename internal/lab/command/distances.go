package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/lab/distances"
)

func (l *lab) distancesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "distances FOLDER", Short: "Compare what runs have trained on with a reference", Args: cobra.ExactArgs(1),
		Long: `Distances reads the runs in a folder, such as those of weir compare, and prints for each how many trajectories it
trained on, the time of its steps, its test scores, and how far its trajectories are from those of the reference: lengths,
times of tools, calls of a second or more and durations, by the Kolmogorov-Smirnov distance with the probability of one as
great by chance. The runs must keep their messages (trainer.archive.messages.bytes).`,
		Example: "  weir-lab bench distances --reference sync-seed-1 runs/compare/staleness-lognormal",
	}
	reference := cmd.Flags().String("reference", "sync-seed-1", "the run that the others are compared with")
	format := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		runs, err := distances.Compare(args[0], *reference)
		if err != nil {
			return err
		}
		return l.printReport(format, runs, func(out io.Writer) { distances.Print(out, runs) })
	}
	return cmd
}
