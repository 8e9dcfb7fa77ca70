package assembly

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Broker runs the run's embedded broker until ctx ends. ready is called once clients are let in, with the broker's address.
func (s *Run) Broker(ctx context.Context, ready func(url string)) error {
	p := s.newProcess()
	own, err := p.startBroker(ctx)
	if err != nil {
		return err
	}
	defer own.Shutdown()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return s.server.Run(running, s.Log) })
	group.Go(func() error {
		to := s.Connector()
		conn, err := to.connectBroker(running, own, streams.RoleAdmin)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := to.openStreams(running, conn); err != nil {
			return err
		}
		if err := own.Admit(); err != nil {
			return err
		}
		s.health.Set("streams", nil)
		ready(own.URL())
		select {
		case <-running.Done():
			return nil
		case <-own.Done():
			return errors.Join(errors.New("the broker stopped by itself"), own.Err())
		}
	})
	return endedInOrder(ctx, group.Wait())
}

// startBroker starts the embedded broker as configured. It lets in this process alone until its streams are made: a client that asks about
// a stream which is still being made would be answered as if the stream were lost. The brokers of a cluster meet only where they listen.
func (p *process) startBroker(ctx context.Context) (*broker.Broker, error) {
	config := p.cfg.Broker.Config
	config.KeysRuns, config.Closed = KeysRuns(p.cfg), p.cfg.Broker.Cluster.Name == ""
	own, err := broker.Start(ctx, config, p.log)
	if err != nil {
		return nil, err
	}
	p.health.Check("store", own.Health)
	p.registry.MustRegister(broker.NewMetrics(own))
	return own, nil
}

// KeysRuns are the runs that keys are for: the configured runs and this run.
func KeysRuns(cfg *config.Config) []string {
	runs := cfg.Broker.KeysRuns
	if !slices.Contains(runs, cfg.Run.Name) {
		runs = append(slices.Clone(runs), cfg.Run.Name)
	}
	return runs
}
