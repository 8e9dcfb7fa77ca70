package cli

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/telemetry"
)

func newTorchWorkerCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "torch-worker", Short: "Lend this machine's GPUs to a trainer on another", Args: cobra.NoArgs,
		Long: `Torch-worker starts a rank of PyTorch for each connection of a trainer that names this machine in torch.machines, and
ends the rank with the connection. Both sides prove by TLS that they have the secret of weir keys --torch. Who has it
may run programs here. Folders of the run must be on storage that all machines share, under the same path.`,
		Example: "  weir keys --torch torch.secret\n  weir torch-worker --listen 10.0.0.2:7070 --secret torch.secret",
	}
	listen := cmd.Flags().String("listen", "", "the address to listen on, host:port")
	secret := cmd.Flags().String("secret", "", "the file of weir keys --torch")
	network := cmd.Flags().String("interface", "", "the network interface by which ranks speak")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var faults []error
		if _, _, err := net.SplitHostPort(*listen); err != nil {
			faults = append(faults, fmt.Errorf("--listen %q: want host:port, such as 10.0.0.2:7070", *listen))
		}
		if *secret == "" {
			faults = append(faults, errors.New("--secret: name the file of weir keys --torch, which the trainer has too"))
		}
		if len(faults) > 0 {
			return fault.Usage(errors.Join(faults...))
		}
		cfg, _, err := a.loadConfig(cmd)
		if err != nil {
			return err
		}
		l, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", *listen)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		fmt.Fprintf(a.out, "lending ranks on %s\n", l.Addr())
		return torch.Serving{Python: cfg.Torch.Python, Secret: *secret, Interface: *network, Log: telemetry.NewLogger(a.err, cfg.Log)}.Serve(cmd.Context(), l)
	}
	return cmd
}
