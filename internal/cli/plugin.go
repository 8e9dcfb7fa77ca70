package cli

import (
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/sglang"
	"github.com/weir-rl/weir/consumers/vllm"
)

func newPluginCommand(a *app) *cobra.Command {
	kinds := map[string]servers.Plugged{"vllm": vllm.Kind{}, "sglang": sglang.Kind{}}
	return &cobra.Command{
		Use: "plugin vllm|sglang [FOLDER]", Short: "Write the plugin that takes weights from shared memory",
		Long: `Plugin writes a Python module, and for SGLang the entry point by which it is
found, into a folder for a server that runs already, on this machine. Without a
folder the module is printed. A server that Weir starts has the plugin.`,
		Example: "  weir plugin vllm weir\n" +
			"  PYTHONPATH=weir VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --worker-extension-cls weir_vllm.Transfer\n" +
			"  weir plugin sglang weir\n" +
			"  PYTHONPATH=weir python3 -m sglang.launch_server --model-path MODEL",
		Args: cobra.MatchAll(cobra.RangeArgs(1, 2), func(cmd *cobra.Command, args []string) error {
			return cobra.OnlyValidArgs(cmd, args[:1])
		}),
		ValidArgs: []string{"vllm", "sglang"},
		RunE: func(_ *cobra.Command, args []string) error {
			files := kinds[args[0]].Plugin()
			if len(args) == 2 {
				return servers.WritePlugin(args[1], files)
			}
			_, err := a.out.Write(files[0].Content)
			return err
		},
	}
}
