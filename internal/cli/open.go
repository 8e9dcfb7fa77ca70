package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/streams"
)

func newOpenCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "open", Short: "Make a run's streams on a broker that is there already", Args: cobra.NoArgs,
		Long: `Open makes the run's streams, or brings their limits to the configured ones. weir broker and weir up do it by
themselves. A broker with keys that is not embedded needs it once for each run, with the admin's key.`,
		Example: "  weir open --broker.url tls://broker:4222 --broker.seed_file keys/admin.seed --broker.tls.ca ca.pem",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd)
			if err != nil {
				return err
			}
			conn, err := s.Connector().ConnectSoon(cmd.Context(), streams.RoleAdmin)
			if err != nil {
				return err
			}
			defer conn.Close()
			run, err := conn.Open(cmd.Context(), s.Config.Run.Name, s.Config.Streams)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "run %s is open on %s\n", run.Name(), s.Connector().URL())
			return nil
		},
	}
}
