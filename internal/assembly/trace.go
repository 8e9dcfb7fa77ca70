package assembly

import (
	"context"
	"time"

	"github.com/weir-rl/weir/internal/tracing"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/metrics"
)

// lastSpans bounds how long a process that ends waits for the receiver of its last spans.
const lastSpans = 5 * time.Second

// openTracer begins to send spans where the configuration names a receiver; the tracer is nil where it does not. Call stop at the end.
func (p *process) openTracer(ctx context.Context, role streams.Role, worker string) (t *tracing.Tracer, stop func(), err error) {
	t, err = tracing.Open(ctx, p.cfg.Tracing, tracing.Role{Name: string(role), Worker: worker, Run: p.cfg.Run.Name, Version: p.build.Version}, p.log)
	if err != nil {
		return nil, nil, err
	}
	return t, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
		defer cancel()
		if err := t.Close(ctx); err != nil {
			p.log.Warn("the last spans are lost", "err", err)
		}
	}, nil
}

// tracedRollouts sends the spans of a producer's rollouts; nil where nothing is traced.
func tracedRollouts(t *tracing.Tracer) func(producers.Served) {
	if t == nil {
		return nil
	}
	return func(s producers.Served) {
		r := tracing.Rollout{
			Ticket: s.Ticket, Delivery: s.Delivery, Producer: s.Producer, Leased: s.Leased, Ended: s.Ended, Publishing: s.Publishing, Stored: s.Stored,
			Trajectory: s.Trajectory,
		}
		if s.Err != nil {
			r.Failed = s.Err.Error()
		}
		for _, turn := range s.Turns {
			calls := make([]tracing.Call, len(turn.Calls))
			for i, c := range turn.Calls {
				calls[i] = tracing.Call(c)
			}
			r.Turns = append(r.Turns, tracing.Turn{Began: turn.Began, Sampled: turn.Sampled, Tokens: turn.Tokens, Calls: calls})
		}
		t.Rollout(r)
	}
}

// tracedEndings sends the spans of the trainer's use of trajectories; nil where nothing is traced.
func tracedEndings(t *tracing.Tracer) func(trainer.Ending) {
	if t == nil {
		return nil
	}
	return func(e trainer.Ending) {
		t.Ending(tracing.Ending{
			Trajectory: e.Trajectory, Issued: e.Issued, Came: e.Came, Batched: e.Batched, Ended: e.Ended, Step: e.Step, Reason: string(e.Reason),
		})
	}
}

// traceStep sends the spans of a step that the trainer has reported.
func traceStep(t *tracing.Tracer, e *schemas.Event) {
	if t == nil || e.Type != schemas.EventStepDone {
		return
	}
	took := func(k metrics.Key) time.Duration { return time.Duration(k.In(e.Metrics) * float64(time.Second)) }
	t.Step(
		e.Step, e.At, took(metrics.TimeStep),
		tracing.Stage{Name: "wait", Took: took(metrics.TimeWait)}, tracing.Stage{Name: "old policy", Took: took(metrics.TimeOldPolicy)},
		tracing.Stage{Name: "update", Took: took(metrics.TimeUpdate)}, tracing.Stage{Name: "save", Took: took(metrics.TimeSave)},
		tracing.Stage{Name: "publish", Took: took(metrics.TimePublish)},
	)
}
