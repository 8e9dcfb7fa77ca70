package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/streambench"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

func (a *app) benchStreamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stream", Short: "Measure publish to batch, the codec, tickets and generate calls", Args: cobra.NoArgs,
		Long: `Stream moves trajectories from producers into batches through Weir and through bare JetStream with the same settings,
which take turns round by round, and prints their rates and the ratios. It starts a broker with the configured
settings in a temporary folder, or uses the one that --broker.url names, with the admin's right to make streams. There
it works in a run of its own, which it removes in the end; it touches no other.`,
		Example: "  weir bench stream\n  weir bench stream --broker.sync_always=false --rounds 21\n  weir bench stream --broker.url nats://broker:4222 --size 500000 -o json",
	}
	c := streambench.Default()
	cmd.Flags().IntVar(&c.Size, "size", c.Size, "bytes of a trajectory on the wire")
	cmd.Flags().IntVar(&c.Batch, "batch", c.Batch, "trajectories that are acked and purged together")
	cmd.Flags().IntVar(&c.Producers, "producers", c.Producers, "connections that publish at once")
	cmd.Flags().IntVar(&c.Rounds, "rounds", c.Rounds, "how often each way takes its turn")
	cmd.Flags().IntVar(&c.Batches, "batches", c.Batches, "batches in a turn")
	cmd.Flags().IntVar(&c.Calls, "calls", c.Calls, "tickets, and generate calls, in a round")
	format := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.Validate(); err != nil {
			return fault.Usage(err)
		}
		s, err := a.session(cmd)
		if err != nil {
			return err
		}
		// Of the many connections that come and go only what goes wrong is told.
		s.log = telemetry.NewLogger(a.err, telemetry.LogConfig{Level: "warn", Format: s.cfg.Log.Format})
		where, stop, err := s.benchBroker(cmd.Context())
		if err != nil {
			return err
		}
		if !format.json() {
			fmt.Fprintln(a.out, where)
		}
		report, err := streambench.Run(cmd.Context(), c, func(ctx context.Context) (*streams.Conn, error) {
			return s.connectSoon(ctx, streams.RoleAdmin)
		})
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		if format.json() {
			return a.printJSON(report)
		}
		report.Print(a.out)
		return nil
	}
	return cmd
}

// benchBroker starts a broker with the configured settings in a temporary folder, unless one is named. It says in
// words what the broker is; stop ends it and removes the folder.
func (s *session) benchBroker(ctx context.Context) (where string, stop func() error, err error) {
	if s.cfg.Broker.URL != "" {
		return "broker " + s.cfg.Broker.URL, func() error { return nil }, nil
	}
	home, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the broker: %w", err)
	}
	config := s.cfg.Broker.Config
	config.StoreDir, config.Listen, config.Monitor = home, "127.0.0.1:0", ""
	config.TLS, config.Cluster, config.KeysDir = streams.TLSConfig{}, broker.ClusterConfig{}, ""
	own, err := broker.Start(ctx, config, s.log)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(home))
	}
	s.cfg.Broker.Config, s.cfg.Broker.URL, s.cfg.Broker.SeedFile = config, own.URL(), ""
	return fmt.Sprintf("broker in this process, over loopback, sync_always %t", config.SyncAlways), func() error {
		own.Shutdown()
		return os.RemoveAll(home)
	}, nil
}
