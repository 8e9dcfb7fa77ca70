package cli

import (
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/consumers/vllm"
)

func newPluginCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "plugin vllm", Short: "Print the plugin by which vLLM takes weights from shared memory",
		Long: `Plugin prints a Python module for a vLLM that runs already, on this machine. A vLLM that Weir starts has it.`,
		Example: "  mkdir -p weir && weir plugin vllm >weir/weir_vllm.py\n" +
			"  PYTHONPATH=weir VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --worker-extension-cls weir_vllm.Transfer",
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"vllm"},
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(vllm.Plugin)
			return err
		},
	}
}
