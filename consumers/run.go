package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// Stream is what an inference consumer needs of the message stream: see [OnRun].
type Stream interface {
	ManifestSource
	ServeGenerate(ctx context.Context, engine string, h generate.Handler, opts ...generate.Option) error
	Emit(ctx context.Context, e *schemas.Event) error
}

// OnRun is the Stream of a run.
func OnRun(run *streams.Run) Stream { return onRun{run} }

type onRun struct{ *streams.Run }

func (r onRun) ServeGenerate(ctx context.Context, engine string, h generate.Handler, opts ...generate.Option) error {
	return generate.Serve(ctx, r.Run, engine, h, opts...)
}

// Deps are what Run is given.
type Deps struct {
	// Run is the run's name, for events.
	Run    string
	Stream Stream
	// Weights reads a version's bytes, from the broker or a shared folder.
	Weights WeightLoader
	// NewDecoder makes the decoder once the first manifest has told the model's configuration.
	NewDecoder NewDecoder
	// Tokenizer is needed for OpenAI.Listen alone.
	Tokenizer Tokenizer
	// ChatTemplate turns the messages of a chat into text; nil is JoinMessages.
	ChatTemplate func([]Message) string
	// Registerer takes the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Ready is told nil when the first weights are in use; nil tells nobody.
	Ready func(error)
	Log   *slog.Logger
}

// Run follows the weights and serves generate calls until ctx ends. It takes calls only once the first weights are in
// use. When ctx ends, calls of the stream are handed over at once: their callers go on elsewhere with what was sampled.
// Callers over HTTP cannot, so theirs may run on for Config.DrainTimeout.
func Run(ctx context.Context, cfg Config, d Deps) error {
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("inference")
	}
	metrics := NewMetrics(d.Registerer)
	engine := NewEngine(cfg, d.NewDecoder, metrics, d.Log)
	server, err := listenOpenAI(NewOpenAI(cfg.OpenAI, engine, d.Tokenizer, d.ChatTemplate, d.Log))
	if err != nil {
		return err
	}
	// The engine outlives ctx by the time it takes to drain.
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	first := make(chan struct{})
	follower := &Follower{
		Manifests: d.Stream, Weights: d.Weights, Swapper: engine, Metrics: metrics, Log: d.Log,
		Applied: func(ctx context.Context, a Applied) {
			select {
			case <-first:
			default:
				close(first)
			}
			d.tell(ctx, cfg.Name, a)
		},
	}

	group, soft := errgroup.WithContext(ctx)
	group.Go(func() error { return engine.Run(hard) })
	group.Go(func() error { return follower.Run(soft) })
	// What the engine ends when its time is up still has to be answered.
	group.Go(func() error { return server.Run(soft, cfg.DrainTimeout+lastAnswers) })
	group.Go(func() error {
		select {
		case <-soft.Done():
			return nil
		case <-first:
		}
		if d.Ready != nil {
			d.Ready(nil)
		}
		d.Log.Info("serving generate calls", "engine", cfg.Name, "policy_version", engine.Version())
		return serve(soft, cfg, d.Stream, engine)
	})
	group.Go(func() error {
		<-soft.Done()
		defer stop()
		if d.Ready != nil {
			d.Ready(errors.New("draining"))
		}
		grace, cancel := context.WithTimeout(hard, cfg.DrainTimeout)
		defer cancel()
		if err := engine.Drain(grace); err != nil {
			d.Log.Warn("ending calls that still run", "engine", cfg.Name, "err", err)
		}
		return nil
	})
	return group.Wait()
}

// lastAnswers is how long the answers to HTTP calls that were ended may take to go out.
const lastAnswers = 2 * time.Second

// serve answers the stream's calls with the engine. The engine's own queue bounds those that wait.
func serve(ctx context.Context, cfg Config, stream Stream, engine *Engine) error {
	err := stream.ServeGenerate(ctx, cfg.Name, engine.Generate,
		generate.WithMaxCalls(cfg.running()+cfg.Queue), generate.WithForget(engine.Forget))
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve generate calls as %s: %w", cfg.Name, err)
	}
	return nil
}

// tell emits the event that a version came into use. Nothing depends on it, so a failure is logged alone.
func (d Deps) tell(ctx context.Context, name string, a Applied) {
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := d.Stream.Emit(bounded, &schemas.Event{
		Run: d.Run, Type: schemas.EventVersionApplied, At: time.Now(), Role: "inference", Worker: name,
		PolicyVersion: a.Version, Metrics: map[string]float64{
			"weights_fetch_seconds": a.Fetch.Seconds(), "weights_prepare_seconds": a.Prepare.Seconds(),
			"swap_wait_seconds": a.Wait.Seconds(), "swap_seconds": a.Pause.Seconds(), "weights_lag_seconds": a.Lag.Seconds(),
		},
	})
	if err != nil && ctx.Err() == nil {
		d.Log.Warn("emit that a version is in use", "policy_version", a.Version, "err", err)
	}
}
