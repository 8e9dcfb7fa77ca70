package assembly

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
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
	return s.runRole(ctx, role{
		name: streams.RoleProducer, waits: "run", reach: (*Connector).attachStreams, calls: true,
		work: func(ctx context.Context, run *streams.Run, c *Course) error {
			return newProducerRole(s.newProcess(), run, c).produceRollouts(ctx)
		},
	})
}

// runProducers runs the producers of a process that has every role, until ctx ends or a producer fails.
func (s *Run) runProducers(ctx context.Context, run *streams.Run, c *Course) error {
	group, ctx := errgroup.WithContext(ctx)
	several := s.Config.Run.Producers > 1
	claims, evaluated := new(producers.Claims), new(producers.Claims)
	for i := range s.Config.Run.Producers {
		role := newProducerRole(s.newProcess(), run, c)
		role.claims, role.claimsEvaluated, role.trains = claims, evaluated, true
		if several {
			role.setNumber(i + 1)
		}
		group.Go(func() error { return role.produceRollouts(ctx) })
	}
	return group.Wait()
}

// producerRole is the producer at work.
type producerRole struct {
	process
	run    *streams.Run
	course *Course
	own    producers.Config // with the worker's name
	// number is the producer's among several of its process, from 1; 0 is alone. collectors registers its metrics.
	number     int
	collectors prometheus.Registerer
	// trains is whether the process has the run's trainer too, and so its sandboxes those of the scores.
	trains bool
	// claims and claimsEvaluated are shared by the producers of a process, whose tools are the same; nil where it has one.
	claims, claimsEvaluated *producers.Claims

	metrics   *producers.Metrics
	evaluated *evaluation.Metrics
	tracer    *tracing.Tracer
}

// newProducerRole makes the role of a run that is open.
func newProducerRole(p process, run *streams.Run, c *Course) *producerRole {
	own := p.cfg.Producer
	if own.Name == "" {
		own.Name = streams.WorkerName("producer")
	}
	return &producerRole{process: p, run: run, course: c, own: own, collectors: p.registry}
}

// setNumber makes the role one of several of its process: its name and its metrics are its own.
func (p *producerRole) setNumber(number int) {
	text := strconv.Itoa(number)
	p.number, p.collectors = number, prometheus.WrapRegistererWith(prometheus.Labels{"producer": text}, p.registry)
	switch {
	case number == 1:
	case p.cfg.Producer.Name == "":
		p.own.Name = streams.WorkerName("producer-" + text)
	default:
		p.own.Name += "-" + text
	}
}

// produceRollouts works on the run's tickets until ctx ends.
func (p *producerRole) produceRollouts(ctx context.Context) error {
	// A machine without sandboxes is reported before the first ticket is taken, and not by each ticket.
	if err := p.openSandboxes(ctx); err != nil {
		return err
	}
	// Leases outlive ctx: a producer that drains finishes, or gives back, the tickets that it holds.
	tickets, err := p.run.Tickets(context.WithoutCancel(ctx), streams.TicketOptions{Producer: p.own.Name, MaxLeases: p.own.Concurrency})
	if err != nil {
		return err
	}
	defer tickets.Close()
	generator := generate.NewClient(p.run, generate.ClientOptions{Ending: ctx.Done()})
	defer generator.Close()
	p.health.Set("run", nil)
	p.log.Info("producing", "producer", p.own.Name, "concurrency", p.own.Concurrency)
	if p.metrics, err = producers.NewMetrics(p.collectors); err != nil {
		return err
	}
	if p.number <= 1 { // the work of all: their metrics are added up
		defer p.watchWork(ctx, p.producerWork())()
	}
	tracer, stopTracing, err := p.openTracer(ctx, streams.RoleProducer, p.own.Name)
	if err != nil {
		return err
	}
	p.tracer = tracer
	defer stopTracing()
	defer p.keepPresence(ctx, p.run, "producer", p.own.Name)()
	if p.evaluated, err = evaluation.NewMetrics(p.collectors); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	producing, stop := context.WithCancel(ctx)
	defer stop()
	if p.cfg.Eval.At == config.EvalAtProducers && p.own.Evaluations > 0 {
		group.Go(func() error { return p.serveEvaluations(producing) })
	}
	group.Go(func() error {
		defer stop()
		return p.rollOut(ctx, tickets, generator)
	})
	return group.Wait()
}

// openSandboxes opens the sandboxes of the episodes, where a task needs any.
func (p *producerRole) openSandboxes(ctx context.Context) error {
	if !p.course.spaces.Claimed() {
		return nil
	}
	pool, err := p.course.spaces.Ready(ctx)
	if err != nil {
		return config.Invalid(err)
	}
	if p.number > 1 {
		return nil // the process's first producer reports what all share
	}
	p.log.Info("programs run in sandboxes", "tier", pool.Tier())
	inProcess := 1
	if p.number == 1 {
		inProcess = p.cfg.Run.Producers
	}
	for _, line := range FewPlaces(p.cfg, inProcess, p.trains) {
		p.log.Warn(line)
	}
	return nil
}

// serveEvaluations answers the run's evaluation tickets until ctx ends, with the agents, tools and rewards of training.
func (p *producerRole) serveEvaluations(ctx context.Context) error {
	// A call that no engine serves goes back at once: the caller of the score waits, and knows whether the version is still there.
	now := make(chan struct{})
	close(now)
	policy := pinnedPolicy{generate.NewClient(generate.Pinned(p.run), generate.ClientOptions{Ending: now})}
	defer policy.Close()
	environments := map[string]producers.Environment{}
	for _, t := range p.course.Tasks {
		environments[t.Name], _ = p.course.scoredEnvironment(t, policy, Question{})
	}
	return evaluation.Run(ctx, evaluation.Config{Name: p.own.Name, Concurrency: p.own.Evaluations}, evaluation.Deps{
		Stream: p.run, Control: p.run.FollowControl, Environments: environments, Claims: p.claimsEvaluated,
		Metrics: p.evaluated,
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
func (p *producerRole) rollOut(ctx context.Context, tickets *streams.TicketSource, generator *generate.Client) error {
	failing, stop := reportFailures(ctx, p.log, p.run, p.own.Name)
	defer stop()
	return producers.Run(ctx, p.own, producers.Deps{
		Stream:       producers.OnRun(p.run, tickets),
		Environments: p.course.taskEnvironments(generator),
		Claims:       p.claims,
		Metrics:      p.metrics,
		Served:       tracedRollouts(p.tracer),
		Failing:      failing,
		Log:          p.log,
	})
}
