package evaluation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Deps are the dependencies of a producer's work on evaluation tickets.
type Deps struct {
	Stream Stream
	// Control calls back with the run's present control and with every later control, until ctx ends.
	Control func(ctx context.Context, fn func(*schemas.Control)) error
	// Environments are the environments of episodes, by task. Their policies sample the version that a request's MinVersion names.
	Environments map[string]producers.Environment
	// Claims are those of the servers of this process that share Environments; nil where no other server does.
	Claims *producers.Claims
	// Metrics may be nil.
	Metrics *Metrics
}

const (
	// maxReceived bounds the messages that wait to be read; tickets that are lost beyond it are asked again.
	maxReceived = 4096
	// keepAlive is how long a ticket is worked on in silence before its asker is told that it still is.
	keepAlive = time.Second
)

// Run answers evaluation tickets until ctx ends. Tickets that are worked on then are given back. It fails where the configuration is wrong,
// or nothing can be answered any more.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if err := errors.Join(cfg.Validate(), streams.CheckName("producer", cfg.Name)); err != nil {
		return fmt.Errorf("answer evaluation tickets: %w", err)
	}
	s := &server{cfg: cfg, deps: deps, in: make(chan *nats.Msg, maxReceived), calls: map[string]*call{}, claims: cmp.Or(deps.Claims, new(producers.Claims))}
	var subs []*nats.Subscription
	defer func() { s.drainSubscriptions(subs) }()
	for _, at := range []struct{ subject, queue string }{
		{deps.Stream.EvaluationsSubject(), queueGroup}, {everySubject(deps.Stream.EvaluationsSubject()), ""},
	} {
		sub, err := deps.Stream.NATS().ChanQueueSubscribe(at.subject, at.queue, s.in)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", at.subject, err)
		}
		subs = append(subs, sub)
	}
	working, stop := context.WithCancelCause(ctx)
	defer s.working.Wait()
	defer stop(errDraining)
	followed := make(chan error, 1)
	s.working.Go(func() {
		followed <- deps.Control(working, func(c *schemas.Control) { s.followControl(c) })
	})
	return s.serveUntil(working, subs, followed)
}

// errDraining is why an episode is cut off when its producer stops.
var errDraining = errors.New("the producer is stopping")

// server is a producer's side.
type server struct {
	cfg     Config
	deps    Deps
	in      chan *nats.Msg
	working sync.WaitGroup

	claims *producers.Claims // of the tickets that are worked on

	mu    sync.Mutex
	away  string           // why no ticket is taken, "" where tickets are
	calls map[string]*call // by name
}

// call is a request for a ticket.
type call struct {
	reply  string
	cancel context.CancelCauseFunc
}

// errCancelled is why an episode is cut off for which nobody waits.
var errCancelled = errors.New("nobody waits for it")

// serveUntil serves until ctx ends.
func (s *server) serveUntil(ctx context.Context, subs []*nats.Subscription, followed <-chan error) error {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-followed:
			if ctx.Err() == nil {
				return fmt.Errorf("follow the control: %w", err)
			}
		case m := <-s.in:
			s.handleMessage(ctx, m)
		case <-tick.C:
			s.keepAlive()
			for _, sub := range subs {
				if !sub.IsValid() {
					return fmt.Errorf("answer evaluation tickets as %s: %w", s.cfg.Name, streams.ErrClosed)
				}
			}
		}
	}
}

// followControl applies a new control.
func (s *server) followControl(c *schemas.Control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.Draining:
		s.away = "the run is draining"
	case c.Paused:
		s.away = "the run is paused"
	default:
		s.away = ""
	}
}

func (s *server) keepAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		_ = s.deps.Stream.NATS().Publish(c.reply, []byte(alive)) // a caller that misses it asks again
	}
}

// handleMessage handles a message: it decodes the ticket, runs it and answers.
func (s *server) handleMessage(ctx context.Context, m *nats.Msg) {
	if m.Header.Get(headerOp) == opCancel {
		s.mu.Lock()
		c := s.calls[string(m.Data)]
		s.mu.Unlock()
		if c != nil {
			c.cancel(errCancelled)
		}
		return
	}
	if m.Reply == "" {
		return
	}
	ticket := new(schemas.Ticket)
	if err := s.decodeTicket(m.Data, ticket); err != nil {
		s.sendAnswer(m.Reply, s.newRefusal(ticket, schemas.EvaluationRefused, err.Error()))
		return
	}
	name := cmp.Or(m.Header.Get(headerCall), m.Reply)
	ctx, cancel := context.WithCancelCause(ctx)
	closed, refusal := s.beginTicket(name, ticket, &call{m.Reply, cancel})
	if refusal != nil {
		cancel(nil)
		s.sendAnswer(m.Reply, refusal)
		return
	}
	s.deps.Metrics.addRunning(1)
	_ = s.deps.Stream.NATS().Publish(m.Reply, []byte(alive)) // from now on silence is a death
	s.working.Go(func() {
		defer s.deps.Metrics.addRunning(-1)
		defer cancel(nil)
		answer := s.runTicket(ctx, ticket)
		s.mu.Lock()
		delete(s.calls, name)
		s.mu.Unlock()
		closed()
		if errors.Is(context.Cause(ctx), errCancelled) {
			s.deps.Metrics.countAnswer("cancelled")
			return
		}
		s.sendAnswer(m.Reply, answer)
	})
}

// decodeTicket decodes a ticket and returns its fault.
func (s *server) decodeTicket(data []byte, t *schemas.Ticket) error {
	if err := schemas.Unmarshal(data, t); err != nil {
		return err
	}
	if err := t.Validate(); err != nil {
		return err
	}
	if t.Run != s.deps.Stream.Name() {
		return fmt.Errorf("%w: a ticket of run %.80q at a producer of run %q", schemas.ErrInvalid, t.Run, s.deps.Stream.Name())
	}
	if t.MinVersion != t.PolicyVersion {
		return fmt.Errorf("%w: an evaluation ticket of versions %d to %d: it names one", schemas.ErrInvalid, t.MinVersion, t.PolicyVersion)
	}
	if _, known := s.deps.Environments[t.Task]; !known {
		return fmt.Errorf("%w: producer %s has no task %.80q: give every role the same configuration", schemas.ErrInvalid, s.cfg.Name, t.Task)
	}
	return nil
}

// beginTicket begins the work on a ticket, which closed ends, or returns the refusal.
func (s *server) beginTicket(name string, t *schemas.Ticket, c *call) (closed func(), refusal *schemas.Evaluation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away != "":
		return nil, s.newRefusal(t, schemas.EvaluationDraining, s.away)
	case len(s.calls) >= s.cfg.Concurrency:
		return nil, s.newRefusal(t, schemas.EvaluationFull, fmt.Sprintf("producer.evaluations is %d", s.cfg.Concurrency))
	}
	if s.calls[name] == nil {
		closed = s.claims.TryClaim(t.ID)
	}
	if closed == nil {
		return nil, s.newRefusal(t, schemas.EvaluationFull, "the same ticket is worked on here")
	}
	s.calls[name] = c
	return closed, nil
}

// newRefusal makes an answer that refuses a ticket.
func (s *server) newRefusal(t *schemas.Ticket, outcome schemas.EvaluationOutcome, why string) *schemas.Evaluation {
	return &schemas.Evaluation{
		Run: s.deps.Stream.Name(), Ticket: cmp.Or(t.ID, unknownTicket), Producer: s.cfg.Name, Outcome: outcome, Error: why,
	}
}

// unknownTicket is the ticket of a refusal whose request could not be read.
const unknownTicket = "?"

// runTicket runs the episode and returns its outcome.
func (s *server) runTicket(ctx context.Context, ticket *schemas.Ticket) *schemas.Evaluation {
	trajectory, transcript, err := producers.Rollout(ctx, ticket, s.deps.Environments[ticket.Task])
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), errDraining) || ctx.Err() != nil:
		return s.newRefusal(ticket, schemas.EvaluationDraining, errDraining.Error())
	case producers.NothingSampled(err):
		return s.newRefusal(ticket, schemas.EvaluationNothing, err.Error())
	case producers.Unserved(err), errors.Is(err, producers.ErrNoRoom):
		return s.newRefusal(ticket, schemas.EvaluationUnserved, err.Error())
	default:
		if panicked, ok := errors.AsType[*producers.PanicError](err); ok {
			s.deps.Stream.Log().Error("an evaluation ticket: a part of the task panicked", "ticket", ticket.ID, "err", err, "stack", string(panicked.Stack))
		}
		return s.newRefusal(ticket, schemas.EvaluationFailed, err.Error())
	}
	trajectory.Producer = s.cfg.Name
	data, err := schemas.Marshal(trajectory)
	if err != nil {
		return s.newRefusal(ticket, schemas.EvaluationFailed, err.Error())
	}
	answer := &schemas.Evaluation{
		Run: ticket.Run, Ticket: ticket.ID, Producer: s.cfg.Name, Outcome: schemas.EvaluationDone, Trajectory: data,
	}
	for _, t := range transcript.Turns {
		answer.Turns = append(answer.Turns, schemas.EvaluationTurn{
			Text: t.Text, Tool: t.Tool, Arguments: t.Arguments, Observation: t.Observation, Error: t.Error,
		})
	}
	return answer
}

// sendAnswer sends an answer in as many messages as it needs.
func (s *server) sendAnswer(to string, e *schemas.Evaluation) {
	s.deps.Metrics.countAnswer(e.Outcome)
	data, err := schemas.Marshal(e)
	if err != nil {
		s.deps.Stream.Log().Error("write the answer to an evaluation ticket", "ticket", e.Ticket, "err", err)
		return
	}
	nc := s.deps.Stream.NATS()
	for _, m := range splitAnswer(to, data, nc.MaxPayload()) {
		if err := nc.PublishMsg(m); err != nil {
			s.deps.Stream.Log().Debug("send the answer to an evaluation ticket; it is asked again", "ticket", e.Ticket, "err", err)
			return
		}
	}
	if len(to) > len(streams.ReplyPrefix) && to[:len(streams.ReplyPrefix)] == streams.ReplyPrefix {
		// An empty message tells the broker that the request is over; else it forgets the request later.
		_ = nc.Publish(to, nil)
	}
}

// drainSubscriptions ends the subscriptions and answers the messages that still came: without an answer the client would wait.
func (s *server) drainSubscriptions(subs []*nats.Subscription) {
	s.mu.Lock()
	s.away = errDraining.Error()
	s.mu.Unlock()
	for _, sub := range subs {
		_ = sub.Drain() // fails only when the connection is gone
	}
	_ = s.deps.Stream.NATS().FlushTimeout(time.Second)
	for {
		select {
		case m := <-s.in:
			s.handleMessage(context.Background(), m)
		default:
			return
		}
	}
}
