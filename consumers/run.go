package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/gpu/hf/chat"
	api "github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// Stream is the part of the message stream that an inference consumer needs: see [OnRun].
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

// Deps are the parts that Run works with.
type Deps struct {
	// Run is the run's name, for events.
	Run    string
	Stream Stream
	// Weights reads a version's bytes, from the broker or a shared folder.
	Weights WeightLoader
	// Sampler generates; a [Batcher] does so in this process. Run calls its Run.
	Sampler Sampler
	// Folder gives the Sampler each version as a folder; nil gives it the weights in memory.
	Folder *Folder
	// Tokenizer is needed for OpenAI.Listen alone.
	Tokenizer openai.Tokenizer
	// ChatTemplate turns the messages of a chat into text; nil joins their contents.
	ChatTemplate func([]api.Message) string
	// Chat writes chats by a model's own template, in place of ChatTemplate; nil does not.
	Chat *chat.Chat
	// Metrics are the consumer's collectors; nil has collectors that nobody reads.
	Metrics *Metrics
	// Ready is called with nil when the first weights are in use, and with an error when the consumer drains; it may be nil.
	Ready func(error)
	// Log may be nil, which logs nothing.
	Log *slog.Logger
}

// Run follows the weights and serves generate calls until ctx ends. It takes calls only once the first weights are in
// use. When ctx ends, calls of the stream end at once: their callers go on at another consumer with the tokens sampled so far.
// Callers over HTTP cannot do that, so their calls may run on for Config.DrainTimeout. It fails where cfg or d is at fault, or where
// nothing can be sampled or served any more.
func Run(ctx context.Context, cfg Config, d Deps) error {
	if err := errors.Join(cfg.Validate(), d.completeDeps()); err != nil {
		return fmt.Errorf("inference: %w", err)
	}
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("inference")
	}
	calls := newGate(d.Sampler, d.Metrics)
	server, err := openai.New(cfg.OpenAI, calls, d.Tokenizer, d.ChatTemplate, d.Log).WithChat(d.Chat).Listen()
	if err != nil {
		return err
	}
	// The sampler outlives ctx by the time that it takes to drain.
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	first := make(chan struct{})
	follower := &Follower{
		Manifests: d.Stream, Weights: d.Weights, Swapper: d.Sampler, Folder: d.Folder, Metrics: d.Metrics, Log: d.Log,
		Applied: func(ctx context.Context, a Applied) {
			select {
			case <-first:
			default:
				close(first)
			}
			d.emitApplied(ctx, cfg.Name, a)
		},
	}

	group, soft := errgroup.WithContext(ctx)
	group.Go(func() error { return d.Sampler.Run(hard) })
	group.Go(func() error { return follower.Run(soft) })
	// Calls that the sampler ends when its time is up still have to be answered.
	group.Go(func() error { return server.Run(soft, cfg.DrainTimeout+lastAnswers) })
	group.Go(func() error {
		select {
		case <-soft.Done():
			return nil
		case <-first:
		}
		d.Ready(nil)
		d.Log.Info("serving generate calls", "engine", cfg.Name, "policy_version", d.Sampler.Version())
		return d.serveCalls(soft, cfg, calls)
	})
	group.Go(func() error {
		<-soft.Done()
		defer stop()
		d.Ready(errors.New("draining"))
		grace, cancel := context.WithTimeout(hard, cfg.DrainTimeout)
		defer cancel()
		if err := calls.drainCalls(grace); err != nil {
			d.Log.Warn("ending calls that still run", "engine", cfg.Name, "err", err)
		}
		return nil
	})
	return group.Wait()
}

// completeDeps fills in the optional fields, and reports a required field that is missing.
func (d *Deps) completeDeps() error {
	if d.Stream == nil || d.Weights == nil || d.Sampler == nil {
		return errors.New("Deps need a Stream, Weights and a Sampler")
	}
	d.Metrics, d.Log = orUnseen(d.Metrics), orDiscard(d.Log)
	d.Metrics.sampler.Store(&d.Sampler)
	if d.Ready == nil {
		d.Ready = func(error) {}
	}
	return nil
}

// orDiscard is log, or a logger that logs nothing.
func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return log
}

// lastAnswers is how long the answers to ended HTTP calls may take to go out.
const lastAnswers = 2 * time.Second

// serveCalls answers the stream's calls with the sampler, whose own queue bounds the calls that wait.
func (d Deps) serveCalls(ctx context.Context, cfg Config, calls *gate) error {
	options := []generate.Option{generate.WithMaxCalls(cfg.mostRunning() + cfg.Queue)}
	if f, ok := d.Sampler.(Forgetter); ok {
		options = append(options, generate.WithForget(f.Forget))
	}
	err := d.Stream.ServeGenerate(ctx, cfg.Name, calls.Generate, options...)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve generate calls as %s: %w", cfg.Name, err)
	}
	return nil
}

// emitApplied emits the event that a version came into use. The event is best effort: an error is only logged.
func (d Deps) emitApplied(ctx context.Context, name string, a Applied) {
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
