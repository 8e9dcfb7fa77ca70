package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

func (a *app) producerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "producer", Short: "Run agents on tickets and publish their trajectories", Args: cobra.NoArgs,
		Example: "  weir producer --broker.url nats://broker:4222 --producer.concurrency 512",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runRole(cmd, role{
				name: streams.RoleProducer, waits: "run", reach: (*session).attach, work: (*session).produce,
			})
		},
	}
}

// produce is the producer's role.
func (s *session) produce(ctx context.Context, run *streams.Run, c *course) error {
	cfg := s.cfg.Producer
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("producer")
	}
	// Leases outlive ctx: a producer that drains finishes, or gives back, what it holds.
	tickets, err := run.Tickets(context.WithoutCancel(ctx), streams.TicketOptions{Producer: cfg.Name, MaxLeases: cfg.Concurrency})
	if err != nil {
		return err
	}
	defer tickets.Close()
	generator := generate.NewClient(run, generate.ClientOptions{Ending: ctx.Done()})
	defer generator.Close()
	s.health.Set("run", nil)
	s.log.Info("producing", "producer", cfg.Name, "concurrency", cfg.Concurrency)
	metrics, err := producers.NewMetrics(s.registry)
	if err != nil {
		return err
	}
	defer s.watchWork(ctx, s.producerWork(run))()
	emitEvent(ctx, s, run, schemas.EventWorkerJoined, "producer", cfg.Name)
	defer emitEvent(context.WithoutCancel(ctx), s, run, schemas.EventWorkerLeft, "producer", cfg.Name)
	return producers.Run(ctx, cfg, producers.Deps{
		Stream:       producers.OnRun(run, tickets),
		Environments: c.environments(generator),
		Metrics:      metrics,
		Log:          s.log,
	})
}

// emitEvent tells people something; nothing depends on it.
func emitEvent(ctx context.Context, s *session, run *streams.Run, kind schemas.EventType, role, worker string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := run.Emit(ctx, &schemas.Event{Run: run.Name(), Type: kind, At: time.Now().UTC(), Role: role, Worker: worker})
	if err != nil {
		s.log.Debug("emit an event", "type", kind, "err", err)
	}
}
