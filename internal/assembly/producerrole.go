package assembly

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/tracing"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// Producer is the producer's role as a process of its own.
func (s *Run) Producer(ctx context.Context) error {
	return s.runRole(ctx, role{name: streams.RoleProducer, waits: "run", reach: (*Run).attachStreams, work: (*Run).produceRollouts, calls: true})
}

// produceRollouts is the producer's role.
func (s *Run) produceRollouts(ctx context.Context, run *streams.Run, c *Course) error {
	cfg := s.Config.Producer
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("producer")
	}
	// A machine without sandboxes is told before the first ticket is taken, and not by each of them.
	if c.spaces.Claimed() {
		pool, err := c.spaces.Ready(ctx)
		if err != nil {
			return config.Invalid(err)
		}
		s.Log.Info("programs run in sandboxes", "tier", pool.Tier())
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
	s.Log.Info("producing", "producer", cfg.Name, "concurrency", cfg.Concurrency)
	metrics, err := producers.NewMetrics(s.registry)
	if err != nil {
		return err
	}
	defer s.watchWork(ctx, s.producerWork(run))()
	tracer, stopTracing, err := s.openTracer(ctx, streams.RoleProducer, cfg.Name)
	if err != nil {
		return err
	}
	defer stopTracing()
	defer s.keepPresence(ctx, run, "producer", cfg.Name)()
	counted, err := evaluation.NewMetrics(s.registry)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	producing, stop := context.WithCancel(ctx)
	defer stop()
	if s.Config.Eval.At == config.EvalAtProducers && cfg.Evaluations > 0 {
		group.Go(func() error { return s.serveEvaluations(producing, run, c, cfg, counted) })
	}
	group.Go(func() error {
		defer stop()
		return s.rollOut(ctx, run, c, cfg, tickets, generator, metrics, tracer)
	})
	return group.Wait()
}

// serveEvaluations answers the run's evaluation tickets until ctx ends, with the agents, tools and rewards of training.
func (s *Run) serveEvaluations(ctx context.Context, run *streams.Run, c *Course, cfg producers.Config, counted *evaluation.Metrics) error {
	// A call that no engine serves goes back at once: whoever asks for the score waits, and knows whether the version is still there.
	now := make(chan struct{})
	close(now)
	policy := pinnedPolicy{generate.NewClient(generate.Pinned(run), generate.ClientOptions{Ending: now})}
	defer policy.Close()
	environments := map[string]producers.Environment{}
	for _, t := range c.Tasks {
		environments[t.Name], _ = c.scoredEnvironment(t, policy, Question{})
	}
	return evaluation.Run(ctx, evaluation.Config{Name: cfg.Name, Concurrency: cfg.Evaluations}, evaluation.Deps{
		Stream: run, Control: run.FollowControl, Environments: environments, Metrics: counted,
	})
}

// pinnedPolicy samples with the version that a ticket names.
type pinnedPolicy struct{ *generate.Client }

// Generate asks for tokens of exactly the request's MinVersion.
func (p pinnedPolicy) Generate(ctx context.Context, req *schemas.GenerateRequest) (*generate.Result, error) {
	ask := *req
	ask.Pinned = true
	return p.Client.Generate(ctx, &ask)
}

// rollOut runs the episodes of training tickets.
func (s *Run) rollOut(
	ctx context.Context, run *streams.Run, c *Course, cfg producers.Config, tickets *streams.TicketSource, generator *generate.Client,
	metrics *producers.Metrics, tracer *tracing.Tracer,
) error {
	return producers.Run(ctx, cfg, producers.Deps{
		Stream:       producers.OnRun(run, tickets),
		Environments: c.taskEnvironments(generator),
		Metrics:      metrics,
		Served:       tracedRollouts(tracer),
		Log:          s.Log,
	})
}
