package tracing

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-rl/weir/schemas"
)

// Rollout is a producer's work on a ticket.
type Rollout struct {
	Ticket   *schemas.Ticket
	Delivery int
	Producer string
	// Leased and Ended bound the work, Publishing and Stored the publication: zero where it did not come to that.
	Leased, Ended, Publishing, Stored time.Time
	// Trajectory is nil, and Failed says why, where nothing was stored.
	Trajectory *schemas.Trajectory
	Failed     string
	Turns      []Turn
}

// Turn is a move of the agent.
type Turn struct {
	Began, Sampled time.Time
	Tokens         int
	Calls          []Call
}

// Call is a call of a tool.
type Call struct {
	Tool   string
	Began  time.Time
	Took   time.Duration
	Failed bool
}

// Rollout sends a producer's spans: how long the ticket waited, its lease, the rollout with its turns and calls, the publication.
func (t *Tracer) Rollout(r Rollout) {
	if t == nil {
		return
	}
	root := ticketSpan(t.run, r.Ticket.ID)
	lease := childSpan(root, fmt.Sprintf("lease %d", r.Delivery))
	ticket := attribute.String("weir.ticket", r.Ticket.ID)
	if r.Delivery <= 1 {
		t.sendSpans(span{id: childSpan(root, "queue"), parent: root, name: "queue", from: r.Ticket.IssuedAt, to: r.Leased, notes: []attribute.KeyValue{ticket}})
	}
	t.sendSpans(span{
		id: lease, parent: root, name: "lease", from: r.Leased, to: r.Ended, failed: r.Failed,
		notes: []attribute.KeyValue{ticket, attribute.Int("weir.delivery", r.Delivery), attribute.String("weir.producer", r.Producer)},
	})
	rollout := childSpan(lease, "rollout")
	notes := []attribute.KeyValue{ticket, attribute.String("weir.task", r.Ticket.Task), attribute.String("weir.source", r.Ticket.Prompt.Source), attribute.Int("weir.turns", len(r.Turns))}
	ended := r.Ended
	if !r.Publishing.IsZero() {
		ended = r.Publishing
	}
	if done := r.Trajectory; done != nil {
		notes = append(
			notes, attribute.Int("weir.tokens", done.Tokens()), attribute.Int("weir.sampled_tokens", done.ActionTokens()),
			attribute.String("weir.stop", string(done.Stop)), attribute.Float64("weir.reward", done.Reward),
		)
	}
	t.sendSpans(span{id: rollout, parent: lease, name: "rollout", from: r.Leased, to: ended, failed: r.Failed, notes: notes})
	for i, turn := range r.Turns {
		t.traceTurn(rollout, i, turn)
	}
	t.sendSpans(span{id: childSpan(lease, "publish"), parent: lease, name: "publish", from: r.Publishing, to: r.Stored, notes: []attribute.KeyValue{ticket}})
}

func (t *Tracer) traceTurn(rollout trace.SpanContext, i int, turn Turn) {
	id, ended := childSpan(rollout, fmt.Sprintf("turn %d", i)), turn.Sampled
	for n, c := range turn.Calls {
		to := c.Began.Add(c.Took)
		if to.After(ended) {
			ended = to
		}
		failed := ""
		if c.Failed {
			failed = "the call came to nothing"
		}
		t.sendSpans(span{
			id: childSpan(id, fmt.Sprintf("call %d", n)), parent: id, name: "tool " + c.Tool, from: c.Began, to: to, failed: failed,
			notes: []attribute.KeyValue{attribute.String("weir.tool", c.Tool)},
		})
	}
	t.sendSpans(span{id: childSpan(id, "generate"), parent: id, name: "generate", from: turn.Began, to: turn.Sampled, notes: []attribute.KeyValue{attribute.Int("weir.sampled_tokens", turn.Tokens)}})
	t.sendSpans(span{id: id, parent: rollout, name: "turn", from: turn.Began, to: ended, notes: []attribute.KeyValue{attribute.Int("weir.turn", i)}})
}

// Ending is a trajectory's end at the trainer.
type Ending struct {
	Trajectory *schemas.Trajectory
	// Issued and Came are zero where nobody knows, Batched where no batch took it.
	Issued, Came, Batched, Ended time.Time
	Step                         int64
	// Reason is why it was not trained on; "" where the step used it.
	Reason string
}

// Ending sends a trainer's spans of a trajectory: the whole way of its ticket, the wait for its group and its batch, and the step.
func (t *Tracer) Ending(e Ending) {
	if t == nil {
		return
	}
	root, ticket := ticketSpan(t.run, e.Trajectory.ID), attribute.String("weir.ticket", e.Trajectory.ID)
	issued, fate := e.Issued, "used"
	if issued.IsZero() {
		issued = e.Trajectory.StartedAt
	}
	if e.Reason != "" {
		fate = e.Reason
	}
	admitted := e.Ended
	if !e.Batched.IsZero() {
		admitted = e.Batched
		if admitted.Before(e.Came) {
			admitted = e.Came
		}
		t.sendSpans(span{
			id: childSpan(root, "step"), parent: root, name: "step", from: admitted, to: e.Ended, links: []trace.SpanContext{stepSpan(t.run, e.Step)},
			notes: []attribute.KeyValue{ticket, attribute.Int64("weir.step", e.Step)},
		})
	}
	t.sendSpans(span{id: childSpan(root, "admit"), parent: root, name: "admit", from: e.Came, to: admitted, notes: []attribute.KeyValue{ticket, attribute.String("weir.fate", fate)}})
	t.sendSpans(span{
		id: root, name: "ticket", from: issued, to: e.Ended,
		notes: []attribute.KeyValue{
			ticket, attribute.String("weir.group", e.Trajectory.Group), attribute.String("weir.task", e.Trajectory.Task), attribute.String("weir.source", e.Trajectory.Source),
			attribute.String("weir.producer", e.Trajectory.Producer), attribute.String("weir.fate", fate), attribute.Int64("weir.step", e.Step), attribute.Float64("weir.reward", e.Trajectory.Reward),
		},
	})
}
