package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newBrokerCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "broker", Short: "Run the message broker: NATS JetStream in this process", Args: cobra.NoArgs,
		Example: "  weir broker --broker.listen 127.0.0.1:4222 --broker.monitor 127.0.0.1:8222",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd, "streams")
			if err != nil {
				return err
			}
			return s.Broker(cmd.Context(), func(url string) {
				fmt.Fprintf(a.out, "broker of run %s on %s\n", s.Config.Run.Name, url)
			})
		},
	}
}
