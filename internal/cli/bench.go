package cli

import "github.com/spf13/cobra"

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure this machine and its broker, as ratios within one run"}
	cmd.AddCommand(a.benchStreamCommand(), a.benchWeightsCommand(), a.benchAlgorithmsCommand())
	return cmd
}
