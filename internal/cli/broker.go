package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

func (a *app) brokerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "broker", Short: "Run the message broker: NATS JetStream in this process", Args: cobra.NoArgs,
		Example: "  weir broker --broker.listen 127.0.0.1:4222 --broker.monitor 127.0.0.1:8222",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.session(cmd, "streams")
			if err != nil {
				return err
			}
			own, err := s.startBroker(cmd.Context())
			if err != nil {
				return err
			}
			defer own.Shutdown()
			group, ctx := errgroup.WithContext(cmd.Context())
			group.Go(func() error { return s.server.Run(ctx, s.log) })
			group.Go(func() error {
				conn, err := s.connect(ctx, own, streams.RoleAdmin)
				if err != nil {
					return err
				}
				defer conn.Close()
				if _, err := s.open(ctx, conn); err != nil {
					return err
				}
				if err := own.Admit(); err != nil {
					return err
				}
				s.health.Set("streams", nil)
				fmt.Fprintf(a.out, "broker of run %s on %s\n", s.cfg.Run.Name, own.URL())
				select {
				case <-ctx.Done():
					return nil
				case <-own.Done():
					return errors.Join(errors.New("the broker stopped by itself"), own.Err())
				}
			})
			return ended(cmd.Context(), group.Wait())
		},
	}
}

// startBroker starts the embedded broker as configured. It lets in this process alone until its streams are made: what others ask
// about streams that are being made is answered as if they were lost. The brokers of a cluster meet only where they listen.
func (s *session) startBroker(ctx context.Context) (*broker.Broker, error) {
	config := s.cfg.Broker.Config
	config.KeysRuns, config.Closed = keysRuns(s.cfg), s.cfg.Broker.Cluster.Name == ""
	own, err := broker.Start(ctx, config, s.log)
	if err != nil {
		return nil, err
	}
	s.health.Check("store", own.Health)
	s.registry.MustRegister(broker.NewMetrics(own))
	return own, nil
}

// errEnded ends the other parts of a process when the role's own work is done.
var errEnded = errors.New("done")

// endOf turns the end of a role's work into the end of the process's other parts.
func endOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil {
		return err
	}
	return errEnded
}

// ended is nil when a process stopped because it was asked to or had finished.
func ended(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
