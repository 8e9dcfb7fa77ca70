package cli

import "github.com/spf13/cobra"

func newProducerCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "producer", Short: "Run agents on tickets and publish their trajectories", Args: cobra.NoArgs,
		Example: "  weir producer --broker.url nats://broker:4222 --producer.concurrency 512",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd, "run")
			if err != nil {
				return err
			}
			return s.Producer(cmd.Context())
		},
	}
}
