package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/streambench"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

func (l *lab) streamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stream", Short: "Measure publish to batch, the codec, tickets and generate calls", Args: cobra.NoArgs,
		Long: `Stream moves trajectories from producers into batches through Weir and through bare JetStream with the same settings,
which take turns round by round, and prints their rates and the ratios. It starts a broker with the configured
settings in a temporary folder, or uses the broker that --broker.url names, with the admin's right to make streams. There
it works in a run of its own, which it removes in the end; it touches no other.`,
		Example: "  weir-lab bench stream\n  weir-lab bench stream --broker.sync_always=false --rounds 21\n  weir-lab bench stream --broker.url nats://broker:4222 --size 500000 -o json",
	}
	c := streambench.Default()
	cmd.Flags().IntVar(&c.Size, "size", c.Size, "bytes of a trajectory on the wire")
	cmd.Flags().IntVar(&c.Batch, "batch", c.Batch, "trajectories that are acked and purged together")
	cmd.Flags().IntVar(&c.Producers, "producers", c.Producers, "connections that publish at once")
	cmd.Flags().IntVar(&c.Rounds, "rounds", c.Rounds, "how often each way takes its turn")
	cmd.Flags().IntVar(&c.Batches, "batches", c.Batches, "batches in a turn")
	cmd.Flags().IntVar(&c.Calls, "calls", c.Calls, "tickets, and generate calls, in a round")
	l.addConfigFlags(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.Validate(); err != nil {
			return fault.Usage(err)
		}
		cfg, err := l.resolveConfig(l.configSources(cmd))
		if err != nil {
			return err
		}
		// Of the many connections that come and go only warnings are logged.
		log := telemetry.NewLogger(l.err, telemetry.LogConfig{Level: "warn", Format: cfg.Log.Format})
		where, stop, err := startBenchBroker(cmd.Context(), cfg, log)
		if err != nil {
			return err
		}
		if !format.isJSON() {
			fmt.Fprintln(l.out, where)
		}
		report, err := streambench.Run(cmd.Context(), c, func(ctx context.Context) (*streams.Conn, error) {
			return connectAdmin(ctx, cfg, log)
		})
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		return l.printReport(format, report, func(w io.Writer) { report.Print(w) })
	}
	return cmd
}

// connectPatience is how long a command tries to reach a broker.
const connectPatience = 5 * time.Second

// connectAdmin connects to the configured broker with the right to make streams.
func connectAdmin(ctx context.Context, cfg *config.Config, log *slog.Logger) (*streams.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	c := streams.ConnectConfig{
		URL: cfg.Broker.URL, Name: "weir-lab", Role: streams.RoleAdmin, SeedFile: cfg.Broker.SeedFile, TLS: cfg.Broker.TLS,
	}
	if c.SeedFile == "" && cfg.Broker.KeysDir != "" {
		c.SeedFile = broker.SeedFile(cfg.Broker.KeysDir, streams.RoleAdmin)
	}
	return streams.Connect(ctx, c, log)
}

// startBenchBroker starts a broker with the configured settings in a temporary folder, unless --broker.url names a broker. where
// describes the broker in words; stop ends it and removes the folder.
func startBenchBroker(ctx context.Context, cfg *config.Config, log *slog.Logger) (where string, stop func() error, err error) {
	if cfg.Broker.URL != "" {
		return "broker " + cfg.Broker.URL, func() error { return nil }, nil
	}
	home, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the broker: %w", err)
	}
	own := cfg.Broker.Config
	own.StoreDir, own.Listen, own.Monitor = home, "127.0.0.1:0", ""
	own.TLS, own.Cluster, own.KeysDir = streams.TLSConfig{}, broker.ClusterConfig{}, ""
	server, err := broker.Start(ctx, own, log)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(home))
	}
	cfg.Broker.Config, cfg.Broker.URL, cfg.Broker.SeedFile = own, server.URL(), ""
	return fmt.Sprintf("broker in this process, over loopback, sync_always %t", own.SyncAlways), func() error {
		server.Shutdown()
		return os.RemoveAll(home)
	}, nil
}
