package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/streams"
)

func newSeatCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "seat", Short: "Mend the seat of a run's trainer"}
	cmd.AddCommand(newSeatResetCommand(a))
	return cmd
}

// newSeatResetCommand is for a run whose trainers end at once.
func newSeatResetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reset", Short: "Write a seat anew that cannot be read", Args: cobra.NoArgs,
		Long: `A run has one trainer at a time: the one whose name stands in the seat, in the buckets CONTROL and WEIGHTS. Where something
else was written there, no trainer can start, and each says so. Stop the run's trainer, reset the seat, and start the
trainer. A seat that can be read is left as it is, and a trainer that lives after all is fenced. What the streams lack
counts as purged.

On a broker with keys it needs the seed of the admin.`,
		Example: "  weir seat reset\n  weir seat reset --run.name mine --broker.url nats://broker:4222 --broker.seed_file admin.seed",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		run, _, leave, err := s.Connector().Visit(cmd.Context(), streams.RoleAdmin)
		if err != nil {
			return err
		}
		defer leave()
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		reset, err := run.ResetSeat(ctx, "weir seat reset by "+operatorName())
		if err != nil {
			return err
		}
		if format.isJSON() {
			return a.printJSON(struct {
				Reset []string `json:"reset"`
			}{append([]string{}, reset...)})
		}
		if len(reset) == 0 {
			fmt.Fprintln(a.out, "the seat can be read: nothing was changed")
			return nil
		}
		fmt.Fprintf(a.out, "the seat was written anew in %s: start the trainer\n", strings.Join(reset, " and "))
		return nil
	}
	return cmd
}
