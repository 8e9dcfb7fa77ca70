package evaluation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// ClientOptions say when the caller gives up.
type ClientOptions struct {
	// Silence is how long a producer may say nothing before it is taken for dead; 0 is 10 s. Producers that live say something every
	// second. While this process has no broker the time stands still.
	Silence time.Duration
	// Kept reports whether a version is still stored, for a ticket that nobody has answered; nil says yes.
	Kept func(ctx context.Context, version int64) (bool, error)
	// Ending is closed when the run is over: a ticket that a producer works on goes on, and a ticket that no producer takes is abandoned at
	// once. A nil channel is never closed.
	Ending <-chan struct{}
}

// Client asks the run's producers. It is safe for concurrent use.
type Client struct {
	stream Stream
	opts   ClientOptions
	warned atomic.Int64 // the version whose tickets the log reports as not taken, plus 1

	mu    sync.Mutex
	kept  int64 // the version that was stored at asked
	asked time.Time
}

// NewClient asks the producers of a run. It needs no closing.
func NewClient(stream Stream, opts ClientOptions) *Client {
	if opts.Silence <= 0 {
		opts.Silence = 10 * time.Second
	}
	return &Client{stream: stream, opts: opts}
}

// FailureError is why a producer that took a ticket gave no result.
type FailureError struct {
	// Why is a word for counters.
	Why string
	Err error
}

func (f *FailureError) Error() string { return f.Err.Error() }

// Unwrap returns the fault.
func (f *FailureError) Unwrap() error { return f.Err }

// Reason is the word under which reports count it.
func (f *FailureError) Reason() string { return f.Why }

// The words of a FailureError.
const (
	whyLost     = "lost"     // the producer died, or is cut off
	whyFailed   = "failed"   // the machinery failed
	whyRefused  = "refused"  // the producer cannot read the ticket, or lacks its task
	whyUnusable = "unusable" // the answer is to another ticket
)

// The pauses before a ticket is asked again that no producer took.
const (
	pauseMin = 20 * time.Millisecond
	pauseMax = 2 * time.Second
	// pauseFull is shorter: a full producer has room when an episode of its ends.
	pauseFull = 200 * time.Millisecond
	// warnAfter is how many times nobody takes a ticket before the log says so.
	warnAfter = 8
)

// errNobody is returned by ask where no producer listens.
var errNobody = errors.New("no producer of the run takes evaluation tickets")

// Roll runs an evaluation ticket at a producer: a [producers.Roll]. It waits while producers are full, are away, or find no engine that
// has the version. It fails with a [FailureError] where a producer that took the ticket gave no result, and with
// [producers.ErrAbandoned] where nobody can: the version is no longer stored, or the run is over.
func (c *Client) Roll(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
	data, err := schemas.Marshal(ticket)
	if err == nil {
		err = ticket.Validate()
	}
	if err != nil {
		return nil, nil, err
	}
	if limit := c.stream.NATS().MaxPayload(); limit > 0 && int64(len(data)) > limit {
		return nil, nil, fmt.Errorf("%w: an evaluation ticket of %d bytes, the broker takes %d", streams.ErrTooLarge, len(data), limit)
	}
	for n := 1; ; n++ {
		answer, err := c.sendTicket(ctx, ticket, data)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		waits := errNobody
		switch {
		case errors.Is(err, errNobody):
		case err != nil:
			return nil, nil, c.unlessGone(ctx, ticket, err)
		case answer.Outcome == schemas.EvaluationDone:
			trajectory, transcript, err := readRollout(ticket, answer)
			if err != nil {
				return nil, nil, &FailureError{whyUnusable, fmt.Errorf("producer %.80s: %w", answer.Producer, err)}
			}
			return trajectory, transcript, nil
		case answer.Outcome == schemas.EvaluationNothing:
			return &schemas.Trajectory{Source: ticket.Prompt.Source, Stop: schemas.StopTokens}, &producers.Transcript{Stop: schemas.StopTokens}, nil
		case answer.Outcome == schemas.EvaluationFailed:
			return nil, nil, c.unlessGone(ctx, ticket, &FailureError{whyFailed, fmt.Errorf("producer %s: %s", answer.Producer, answer.Error)})
		case answer.Outcome == schemas.EvaluationRefused:
			return nil, nil, &FailureError{whyRefused, fmt.Errorf("producer %s: %s", answer.Producer, answer.Error)}
		default:
			waits = fmt.Errorf("producer %s: %s: %s", answer.Producer, answer.Outcome, answer.Error)
		}
		if answer == nil || answer.Outcome != schemas.EvaluationFull {
			if err := c.unlessGone(ctx, ticket, nil); err != nil {
				return nil, nil, err
			}
			if c.isEnding() {
				return nil, nil, fmt.Errorf("%w: the run is over: %w", producers.ErrAbandoned, waits)
			}
			if n == warnAfter && c.warned.Swap(ticket.PolicyVersion+1) != ticket.PolicyVersion+1 {
				c.stream.Log().Warn("evaluation tickets wait", "policy_version", ticket.PolicyVersion, "err", waits)
			}
		}
		longest := pauseMax
		if answer != nil && answer.Outcome == schemas.EvaluationFull {
			longest = pauseFull
		}
		if err := waitBeforeRetry(ctx, n, longest); err != nil {
			return nil, nil, err
		}
	}
}

// unlessGone is err, or that the ticket's version is no longer stored.
func (c *Client) unlessGone(ctx context.Context, ticket *schemas.Ticket, err error) error {
	if c.opts.Kept == nil {
		return err
	}
	if c.isStored(ctx, ticket.PolicyVersion) {
		return err
	}
	gone := fmt.Errorf("%w: version %d is no longer stored: raise streams.weights_keep or eval.every", producers.ErrAbandoned, ticket.PolicyVersion)
	if err != nil {
		gone = fmt.Errorf("%w: %w", gone, err)
	}
	return gone
}

// isStored reports whether a version is stored, as far as this is known: many tickets ask at the same time, and the broker is asked once a
// second.
func (c *Client) isStored(ctx context.Context, version int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == version && time.Since(c.asked) < time.Second {
		return true
	}
	kept, err := c.opts.Kept(ctx, version)
	if err != nil || kept { // a caller that does not know goes on
		c.kept, c.asked = version, time.Now()
		return true
	}
	return false
}

// isEnding reports whether the client is ending.
func (c *Client) isEnding() bool {
	select {
	case <-c.opts.Ending:
		return true
	default:
		return false
	}
}

// sendTicket sends the ticket once and waits for the whole answer, or until its producer is silent for too long.
func (c *Client) sendTicket(ctx context.Context, ticket *schemas.Ticket, data []byte) (*schemas.Evaluation, error) {
	nc := c.stream.NATS()
	reply := nc.NewInbox()
	in := make(chan *nats.Msg, maxParts+64)
	sub, err := nc.ChanSubscribe(reply, in)
	if err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	ended := false
	defer func() {
		_ = sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
		if !ended {
			c.cancelTicket(nc, reply)
		}
	}()
	err = nc.PublishMsg(&nats.Msg{Subject: c.stream.EvaluationsSubject(), Reply: reply, Header: nats.Header{headerCall: {reply}}, Data: data})
	if streams.IsTransient(err) {
		return nil, errNobody
	}
	if err != nil {
		return nil, fmt.Errorf("send an evaluation ticket: %w", err)
	}
	answer, ended, err := c.awaitAnswer(ctx, nc, in, ticket)
	return answer, err
}

// cancelTicket has the producer of a ticket stop its rollout.
func (c *Client) cancelTicket(nc *nats.Conn, reply string) {
	m := nats.NewMsg(everySubject(c.stream.EvaluationsSubject()))
	m.Header.Set(headerOp, opCancel)
	m.Data = []byte(reply)
	_ = nc.PublishMsg(m) // a producer that does not receive it works to the end for nobody
}

// awaitAnswer joins the parts of a ticket's answer. ended reports that no producer works on the ticket any more.
func (c *Client) awaitAnswer(ctx context.Context, nc *nats.Conn, in <-chan *nats.Msg, ticket *schemas.Ticket) (answer *schemas.Evaluation, ended bool, err error) {
	silence := time.NewTimer(c.opts.Silence)
	defer silence.Stop()
	var whole joiner
	taken := false
	for {
		select {
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case <-silence.C:
			if !nc.IsConnected() {
				silence.Reset(c.opts.Silence)
				continue
			}
			if !taken {
				return nil, false, errNobody
			}
			return nil, false, &FailureError{whyLost, fmt.Errorf("the producer of ticket %s said nothing for %s", ticket.ID, c.opts.Silence)}
		case m := <-in:
			silence.Reset(c.opts.Silence)
			switch {
			case len(m.Data) == 0 && m.Header.Get("Status") == "503":
				return nil, true, errNobody
			case len(m.Data) == 0:
				continue
			case string(m.Data) == alive:
				taken = true
				continue
			}
			done, err := whole.addPart(m)
			if err != nil {
				return nil, false, &FailureError{whyUnusable, err}
			}
			if !done {
				continue
			}
			answer, err := c.readAnswer(ticket, whole.data)
			return answer, true, err
		}
	}
}

// readAnswer decodes an answer and holds it against its ticket.
func (c *Client) readAnswer(ticket *schemas.Ticket, data []byte) (*schemas.Evaluation, error) {
	answer := new(schemas.Evaluation)
	if err := schemas.Unmarshal(data, answer); err != nil {
		return nil, &FailureError{whyUnusable, err}
	}
	if err := c.checkAnswer(ticket, answer); err != nil {
		return nil, &FailureError{whyUnusable, err}
	}
	return answer, nil
}

// checkAnswer returns the fault of an answer, apart from its trajectory.
func (c *Client) checkAnswer(ticket *schemas.Ticket, e *schemas.Evaluation) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if e.Run != c.stream.Name() || e.Ticket != ticket.ID && (e.Ticket != unknownTicket || e.Outcome != schemas.EvaluationRefused) {
		return fmt.Errorf("%w: it is of run %.80q, ticket %.80q", schemas.ErrInvalid, e.Run, e.Ticket)
	}
	return nil
}

// readRollout decodes the rollout of an answer, which must be of the ticket and of its version.
func readRollout(ticket *schemas.Ticket, e *schemas.Evaluation) (*schemas.Trajectory, *producers.Transcript, error) {
	t := new(schemas.Trajectory)
	if err := schemas.Unmarshal(e.Trajectory, t); err != nil {
		return nil, nil, err
	}
	if err := t.Validate(); err != nil {
		return nil, nil, err
	}
	switch {
	case t.Run != ticket.Run || t.ID != ticket.ID || t.Task != ticket.Task || t.PromptID != ticket.Prompt.ID || t.Source != ticket.Prompt.Source:
		return nil, nil, fmt.Errorf("%w: a trajectory of run %.80q, ticket %.80q, task %.80q, prompt %.80q", schemas.ErrInvalid, t.Run, t.ID, t.Task, t.PromptID)
	case t.OldestVersion() != ticket.PolicyVersion || t.NewestVersion() != ticket.PolicyVersion:
		return nil, nil, fmt.Errorf("%w: versions %d to %d sampled it, and it is to be of version %d", schemas.ErrInvalid, t.OldestVersion(), t.NewestVersion(), ticket.PolicyVersion)
	case len(e.Turns) != len(t.Turns):
		return nil, nil, fmt.Errorf("%w: %d turns in text of %d", schemas.ErrInvalid, len(e.Turns), len(t.Turns))
	}
	for i := range t.Segments {
		if t.Segments[i].Temperature != ticket.Sampling.Temperature {
			return nil, nil, fmt.Errorf("%w: temperature %g, and it is to be %g", schemas.ErrInvalid, t.Segments[i].Temperature, ticket.Sampling.Temperature)
		}
	}
	out := &producers.Transcript{Prompt: ticket.Prompt.Text, Answer: t.Answer, Stop: t.Stop}
	for i, turn := range e.Turns {
		out.Sampled += t.Turns[i].End - t.Turns[i].Start
		out.Turns = append(out.Turns, producers.TranscriptTurn{
			Text: turn.Text, Tool: turn.Tool, Arguments: turn.Arguments, Observation: turn.Observation, Error: turn.Error,
			Calls: make([]producers.TranscriptCall, len(t.Turns[i].Calls)),
		})
	}
	return t, out, nil
}

// waitBeforeRetry waits before the n-th time that a ticket is asked again, with jitter so that clients part.
func waitBeforeRetry(ctx context.Context, n int, longest time.Duration) error {
	d := min(pauseMin<<min(n-1, 10), longest)
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
