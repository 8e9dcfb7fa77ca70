package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
)

func newTrainerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trainer", Short: "Train the policy on trajectories and publish its versions", Args: cobra.NoArgs,
		Example: "  weir trainer --broker.url nats://broker:4222 --trainer.eta 8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The log and the live view share a terminal.
			shared := &screen{to: a.err}
			if a.showsLive(a.out) && isTerminal(a.err) {
				a.err = shared
			}
			s, err := a.openProcess(cmd, "run")
			if err != nil {
				return err
			}
			err = s.Trainer(cmd.Context(), func() (assembly.View, func()) {
				view := a.newProgress(s.Config, a.out)
				shared.printAbove(view.Note)
				return view, func() {
					shared.printAbove(nil)
					view.Close()
				}
			})
			// SIGTERM is how an orchestrator ends a role in order. Somebody's Ctrl-C cuts the training short.
			if signal := receivedSignal(cmd.Context()); err == nil && signal != nil && signal.Signal == os.Interrupt {
				return interruptedError(cmd.Context(), nil)
			}
			return err
		},
	}
	a.plainFlag(cmd)
	return cmd
}
