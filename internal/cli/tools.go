package cli

import "github.com/spf13/cobra"

func newToolsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "tools", Short: "Serve the tools that are placed on workers to the producers", Args: cobra.NoArgs,
		Long: `Tools is the role that runs the tools with tools.NAME.on: workers, for the episodes of all producers. Start as many as
the tools need; each takes toolworker.sessions episodes. When it is told to stop it opens no session any more and gives
those that are open toolworker.grace.`,
		Example: "  weir tools --config run.yaml --broker.url nats://broker:4222 --toolworker.sessions 64",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd, "sessions")
			if err != nil {
				return err
			}
			return s.Tools(cmd.Context())
		},
	}
}
