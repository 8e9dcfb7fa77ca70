package assembly

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// askTimeout bounds how long a look at a role's work waits for the broker.
const askTimeout = 2 * time.Second

// watchWork has /readyz tell whether a role's work gets done, until the returned function is called.
func (p *process) watchWork(ctx context.Context, w telemetry.Work) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { p.health.Watch(ctx, w, p.cfg.Telemetry.StalledAfter, p.log) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// producerWork waits while an episode runs, or a ticket that nobody has taken.
func (p *producerRole) producerWork() telemetry.Work {
	return telemetry.Work{
		Part: "producer",
		Done: func() float64 {
			return telemetry.Counted(p.registry, "weir_producer_episodes_total", "weir_producer_dropped_total",
				"weir_producer_generate_seconds", "weir_producer_tool_seconds")
		},
		Waits: func(ctx context.Context) string {
			return atBroker(ctx, p.run, func(ctx context.Context) (string, error) {
				if n := telemetry.Counted(p.registry, "weir_producer_episodes_running"); n > 0 {
					return fmt.Sprintf("%.0f episodes are running", n), nil
				}
				tickets, err := p.run.TicketCounts(ctx)
				if err != nil || tickets.Waiting == 0 {
					return "", err
				}
				return fmt.Sprintf("%d tickets wait for a producer", tickets.Waiting), nil
			})
		},
	}
}

// inferenceWork waits while a call waits, or a policy version that is newer than the version in use.
func (p *inferenceRole) inferenceWork() telemetry.Work {
	return telemetry.Work{
		Part: "inference",
		Done: func() float64 {
			return telemetry.Counted(p.registry, "weir_inference_tokens_total", "weir_inference_calls_total", "weir_inference_swaps_total")
		},
		Waits: func(ctx context.Context) string {
			return atBroker(ctx, p.run, func(ctx context.Context) (string, error) {
				if n := telemetry.Counted(p.registry, "weir_inference_running", "weir_inference_waiting"); n > 0 {
					return fmt.Sprintf("%.0f calls wait for tokens", n), nil
				}
				newest, err := p.run.LatestManifest(ctx)
				if errors.Is(err, streams.ErrNoWeights) {
					return "", nil
				}
				if err != nil {
					return "", err
				}
				if in := telemetry.Counted(p.registry, "weir_inference_applied_version"); float64(newest.Version) > in {
					return fmt.Sprintf("policy version %d is published while version %.0f is in use", newest.Version, in), nil
				}
				return "", nil
			})
		},
	}
}

// trainerWork waits until the run is done. Messages that are read and refused are no work: a flood of it must not look like a run that goes
// on.
func (p *trainerRole) trainerWork() telemetry.Work {
	return telemetry.Work{
		Part: "trainer",
		Done: func() float64 {
			return float64(p.passes.Load()) + telemetry.Counted(p.registry, "weir_trainer_taken_up_total", "weir_trainer_steps_total")
		},
		Waits: func(ctx context.Context) string {
			return atBroker(ctx, p.run, func(ctx context.Context) (string, error) {
				if telemetry.Counted(p.registry, "weir_trainer_archive_awaited") > 0 {
					return "the run waits until weir archive has kept messages: trainer.archive.required is set", nil
				}
				tickets, err := p.run.TicketCounts(ctx)
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("the step waits for trajectories: %d tickets wait for a producer, %d are leased, and %d requests for a ticket stand open",
					tickets.Waiting, tickets.Leased, tickets.Takers), nil
			})
		},
	}
}

// atBroker describes the work that waits, as the broker reports it. Nothing does while the run is paused or draining, and whatever there is
// does while the broker is away.
func atBroker(ctx context.Context, run *streams.Run, waits func(context.Context) (string, error)) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	control, err := run.Control(ctx)
	if errors.Is(err, streams.ErrNoControl) {
		control, err = &schemas.Control{}, nil
	}
	if err == nil {
		if control.Paused || control.Draining {
			return ""
		}
		var what string
		if what, err = waits(ctx); err == nil {
			return what
		}
	}
	return fmt.Sprintf("the broker does not tell what waits: %v", err)
}

// passCounter is an engine whose forward passes are counted: a step of a large model is many of them.
type passCounter struct {
	gpu.Engine
	passes *atomic.Int64
}

// Adapts reports whether the engine trains an adapter alone, as gpu.Adapting does.
func (e passCounter) Adapts() bool {
	a, ok := e.Engine.(gpu.Adapting)
	return ok && a.Adapts()
}

func (e passCounter) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	return e.Engine.Evaluate(ctx, parts, func(i int, o *gpu.Outputs) error {
		e.passes.Add(1)
		return each(i, o)
	})
}

func (e passCounter) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) (*gpu.Gradients, error)) error {
	return e.Engine.Accumulate(ctx, parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
		e.passes.Add(1)
		return each(i, o)
	})
}
