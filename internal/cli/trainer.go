package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
)

func newTrainerCommand(a *app) *cobra.Command {
	var shadows *shadowFlags
	cmd := &cobra.Command{
		Use: "trainer", Short: "Train the policy on trajectories and publish its versions", Args: cobra.NoArgs,
		Long: `Trainer trains a run on the trajectories of its producers and publishes each version of the policy.

With --shadow it trains a second policy from the batches that a run keeps, under another loss, estimator, optimizer or
smaller eta: several losses for one inference bill. A shadow reads the run's folder and has no connection to its
broker: it publishes nothing, issues nothing and acks nothing, and the run does not wait for it. On Linux it takes the
processor time that others leave, in a session of its own where the kernel shares time between sessions. It has a folder of its
own below the run's, shadows/NAME, laid out as a run's folder, and goes on from there when it is started again. It
begins at the run's newest full checkpoint, or at --from.`,
		Example: "  weir trainer --broker.url nats://broker:4222 --trainer.eta 8\n" +
			"  weir trainer --shadow cispo --run.name mine --trainer.loss.name cispo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *shadows.name != "" {
				return a.runShadow(cmd, shadows)
			}
			if err := checkAbsent(cmd); err != nil {
				return err
			}
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
	shadows = newShadowFlags(cmd)
	return cmd
}
