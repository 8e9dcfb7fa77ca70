package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// TicketOptions say how tickets are taken.
type TicketOptions struct {
	// MaxLeases bounds the leases that are open at once; Take waits beyond it. 0 is no bound.
	MaxLeases int
	// Producer is the name of the taker, which the markers carry that close the sample of a poisoned or unreadable ticket. ""
	// is "tickets".
	Producer string
}

// TicketSource hands out leases. It is safe for concurrent use.
type TicketSource struct {
	run      *Run
	producer string
	slots    chan struct{} // nil without a bound
	log      *slog.Logger

	// life ends with the source. The goroutines of the source run under it.
	life   context.Context //nolint:containedctx // of the goroutines that the source starts later
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	demand chan struct{}
	ready  chan taken
	left   chan struct{}

	mu     sync.Mutex
	takers int
	known  identity
}

// identity is what the source last read of the stream that it takes tickets from.
type identity struct {
	created time.Time
	lease   time.Duration
	// at is when the broker was asked, and reconnects how often the connection had been made again by then.
	at         time.Time
	reconnects uint64
}

// identityAge bounds how long a source uses what it read of its stream, and of the length of a lease, before it asks the broker
// again. After a reconnection, or a request that failed, it asks at once.
const identityAge = 30 * time.Second

// taken is a message from the broker, and when the stream that it came from was created.
type taken struct {
	msg     jetstream.Msg
	at      time.Time
	created time.Time
}

// How long one request for a ticket waits at the broker, and how often the broker confirms that it still waits.
const (
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
)

// Tickets returns a source of leases. ctx is its life: when ctx ends, open leases are no longer renewed and are lost, so end them
// before.
func (r *Run) Tickets(ctx context.Context, options TicketOptions) (*TicketSource, error) {
	if options.Producer == "" {
		options.Producer = "tickets"
	}
	if err := CheckName("producer", options.Producer); err != nil {
		return nil, err
	}
	if options.MaxLeases < 0 {
		return nil, fmt.Errorf("take tickets: max leases %d: must not be negative", options.MaxLeases)
	}
	s := &TicketSource{
		run: r, producer: options.Producer, log: r.log,
		demand: make(chan struct{}, 1), ready: make(chan taken), left: make(chan struct{}, 1),
	}
	if options.MaxLeases > 0 {
		s.slots = make(chan struct{}, options.MaxLeases)
	}
	var consumer jetstream.Consumer
	err := r.call(ctx, "take tickets", r.names.tickets, func(ctx context.Context) (err error) {
		consumer, _, err = s.identify(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.life, s.cancel = context.WithCancel(ctx)
	s.tasks.Go(func() { s.pump(consumer) })
	return s, nil
}

// Close ends the source; open leases are lost. It returns when every goroutine of the source has ended.
func (s *TicketSource) Close() {
	s.cancel()
	s.tasks.Wait()
}

// Take waits for a ticket and leases it. A ticket that cannot be read, or was delivered too often, goes to REJECTED, its sample is
// closed, and Take goes on to the next ticket. It fails when ctx or the source ends.
func (s *TicketSource) Take(ctx context.Context) (*Lease, error) {
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.life.Done():
			return nil, fmt.Errorf("take ticket: source: %w", ErrClosed)
		}
	}
	l, err := s.take(ctx)
	if err != nil {
		s.freeSlot()
	}
	return l, err
}

func (s *TicketSource) freeSlot() {
	if s.slots != nil {
		<-s.slots
	}
}

// identify asks the broker which stream the tickets come from, and how they are leased.
func (s *TicketSource) identify(ctx context.Context) (jetstream.Consumer, identity, error) {
	now := identity{at: time.Now(), reconnects: s.run.nc.Stats().Reconnects}
	stream, err := s.run.js.Stream(ctx, s.run.names.tickets)
	if err != nil {
		return nil, identity{}, err
	}
	consumer, err := stream.Consumer(ctx, durableProducers)
	if err != nil {
		return nil, identity{}, err
	}
	now.created, now.lease = stream.CachedInfo().Created, consumer.CachedInfo().Config.AckWait
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.known.created; !before.IsZero() && !before.Equal(now.created) {
		s.log.Warn("the broker's tickets were made anew: leases of the old ones are lost", "before", before, "created", now.created)
	}
	s.known = now
	return consumer, now, nil
}

// current is the identity of the stream, read again where it may have changed.
func (s *TicketSource) current(ctx context.Context) (identity, error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if known.reconnects == s.run.nc.Stats().Reconnects && time.Since(known.at) < identityAge {
		return known, nil
	}
	_, known, err := s.identify(ctx)
	return known, err
}

// doubt makes the next use of the identity read it again.
func (s *TicketSource) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.at = time.Time{}
}

// same fails with [ErrStreamRecreated] where the tickets' stream was not created at that time. In another stream the reply subject
// of a ticket belongs to another ticket: an acknowledgement of the old ticket would end the other.
func (s *TicketSource) same(ctx context.Context, created time.Time) error {
	now, err := s.current(ctx)
	if err == nil && !now.created.Equal(created) {
		err = &RecreatedError{Stream: s.run.names.tickets, Want: created, Have: now.created}
	}
	return err
}

// length is how long a lease lasts from when the broker receives its renewal.
func (s *TicketSource) length() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.lease
}

func (s *TicketSource) take(ctx context.Context) (*Lease, error) {
	for {
		t, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		l, err := s.admit(ctx, t)
		if err != nil { // as when ctx has ended: the next taker need not wait until this lease lapses
			s.putBack(t)
		}
		if err != nil || l != nil {
			return l, err
		}
	}
}

// enter counts a waiting taker. leave takes off a taker that gives up; deliver takes off a taker that gets a ticket, so that the
// pump never asks for a second ticket for it.
func (s *TicketSource) enter() {
	s.count(1)
	select {
	case s.demand <- struct{}{}:
	default:
	}
}

func (s *TicketSource) leave() {
	s.count(-1)
	select {
	case s.left <- struct{}{}:
	default:
	}
}

func (s *TicketSource) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takers += n
}

func (s *TicketSource) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takers > 0
}

func (s *TicketSource) next(ctx context.Context) (taken, error) {
	if err := ctx.Err(); err != nil {
		return taken{}, context.Cause(ctx)
	}
	s.enter()
	select {
	case t := <-s.ready:
		return t, nil
	case <-ctx.Done():
		s.leave()
		return taken{}, context.Cause(ctx)
	case <-s.life.Done():
		s.leave()
		return taken{}, fmt.Errorf("take ticket: source: %w", ErrClosed)
	}
}

// pump asks the broker for one ticket at a time, and only while a taker waits: a ticket in a buffer is a lease that runs for
// nobody.
func (s *TicketSource) pump(consumer jetstream.Consumer) {
	for {
		select {
		case <-s.demand:
		case <-s.life.Done():
			return
		}
		for s.wanted() && s.life.Err() == nil {
			if t, ok := s.pull(consumer); ok {
				s.deliver(t)
			}
		}
	}
}

// deliver gives a ticket to a waiting taker, or back to the broker where no taker waits any more.
func (s *TicketSource) deliver(t taken) {
	for s.wanted() {
		select {
		case s.ready <- t:
			s.count(-1)
			return
		case <-s.left:
		case <-s.life.Done():
			s.putBack(t)
			return
		}
	}
	s.putBack(t)
}

// putBack gives a ticket back to the broker without counting the delivery: nobody worked on it.
func (s *TicketSource) putBack(t taken) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), ackTimeout)
	defer cancel()
	if err := s.same(ctx, t.created); err != nil {
		s.log.Debug("ticket not returned; its lease will lapse", "err", err)
		return
	}
	released := 0
	meta, err := t.msg.Metadata()
	if err == nil {
		released, err = s.run.released(ctx, t.msg.Subject(), int(meta.NumDelivered))
	}
	if err == nil {
		err = s.run.release(ctx, t.msg.Subject(), released+1)
	}
	if err != nil {
		s.log.Debug("a ticket given back unworked counts as a delivery", "err", err)
	}
	if err := t.msg.Nak(); err != nil {
		s.log.Debug("ticket not returned; its lease will lapse", "err", err)
	}
}

func (s *TicketSource) pull(consumer jetstream.Consumer) (taken, bool) {
	ctx, cancel := context.WithTimeout(s.life, pullExpiry)
	defer cancel()
	var batch jetstream.MessageBatch
	now, err := s.current(ctx)
	if err == nil {
		batch, err = consumer.Fetch(1, jetstream.FetchContext(ctx), jetstream.FetchHeartbeat(pullHeartbeat))
	}
	if err == nil {
		for msg := range batch.Messages() {
			return taken{msg: msg, at: time.Now(), created: now.created}, true
		}
		err = batch.Error()
	}
	if err != nil && s.life.Err() == nil {
		s.log.Debug("no ticket from the broker; asking again", "err", err)
		s.doubt()
		_ = wait(s.life, reconnectWait)
	}
	return taken{}, false
}

// admit turns a message into a lease. It returns nil, nil where the message was refused.
func (s *TicketSource) admit(ctx context.Context, t taken) (*Lease, error) {
	meta, err := t.msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("take ticket: read metadata: %w", err)
	}
	from := origin{stream: s.run.names.tickets, subject: t.msg.Subject(), sequence: meta.Sequence.Stream}
	ticket := new(schemas.Ticket)
	if reason, err := s.judge(t.msg, ticket); err != nil {
		return nil, s.refuse(ctx, t, from, reason, err.Error())
	}
	sent := int(meta.NumDelivered)
	released, err := s.run.released(ctx, t.msg.Subject(), sent)
	if err != nil {
		return nil, err
	}
	delivery := sent - released
	if limit := s.run.topology.MaxDeliver; limit > 0 && delivery > limit {
		return nil, s.refuse(ctx, t, from, schemas.ReasonPoisoned, fmt.Sprintf("delivered %d times", limit))
	}
	l := &Lease{
		Ticket: ticket, Delivery: delivery, sent: sent,
		source: s, msg: t.msg, from: from, created: t.created, lost: make(chan struct{}), ended: make(chan struct{}),
		free: sync.OnceFunc(s.freeSlot),
	}
	s.tasks.Go(func() { l.keep(t.at.Add(s.length())) })
	return l, nil
}

// judge decodes a ticket and returns what is wrong with it.
func (s *TicketSource) judge(msg jetstream.Msg, ticket *schemas.Ticket) (schemas.Reason, error) {
	if err := schemas.Unmarshal(msg.Data(), ticket); err != nil {
		return decodeReason(err), err
	}
	if ticket.Run != s.run.run {
		return schemas.ReasonForeign, fmt.Errorf("ticket of run %q in run %q", ticket.Run, s.run.run)
	}
	if err := s.run.checkTicket(ticket); err != nil {
		return schemas.ReasonMalformed, err
	}
	if want := s.run.names.ticketSubject(ticket.Task, ticket.Group, ticket.Sample); msg.Subject() != want {
		return schemas.ReasonForeign, fmt.Errorf("ticket %s came under subject %s, not %s", ticket.ID, msg.Subject(), want)
	}
	return "", nil
}

// decodeReason is the reason for a message that schemas.Unmarshal refused.
func decodeReason(err error) schemas.Reason {
	switch {
	case errors.Is(err, schemas.ErrVersion):
		return schemas.ReasonVersion
	case errors.Is(err, schemas.ErrKind):
		return schemas.ReasonForeign
	}
	return schemas.ReasonMalformed
}

// refuse moves a ticket to REJECTED and closes its sample, so that the trainer does not wait for it. The subject names the sample,
// even where the ticket cannot be read.
func (s *TicketSource) refuse(ctx context.Context, t taken, from origin, reason schemas.Reason, detail string) error {
	if err := s.run.reject(ctx, from, reason, detail, t.msg.Data()); err != nil {
		return err
	}
	if group, sample, ok := sampleOf(from.subject); ok {
		err := s.run.CloseGroup(ctx, &schemas.GroupClosed{
			Run: s.run.run, Group: group, Cancelled: []int{sample}, Producer: s.producer, ClosedAt: time.Now().UTC(),
			Why: cleanDetail(string(reason) + " ticket: " + detail),
		})
		if err != nil {
			return err
		}
	}
	err := s.end(ctx, t.msg.Reply(), from.sequence, t.created, "+TERM "+string(reason))
	if errors.Is(err, ErrStreamRecreated) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // it went with its stream
	}
	return err
}

// end acknowledges a ticket for good and waits until the broker has confirmed it. A broker that was killed may have lost the record
// that it delivered the ticket. It then ignores the acknowledgement, without an answer, and will deliver the ticket again: so a
// ticket that is done is removed from the stream where no answer comes.
func (s *TicketSource) end(ctx context.Context, reply string, sequence uint64, created time.Time, body string) error {
	name := s.run.names.tickets
	return s.run.call(ctx, "end a ticket", name, func(ctx context.Context) error {
		if err := s.same(ctx, created); err != nil {
			return err
		}
		err := s.run.ack(ctx, reply, body)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || strings.HasPrefix(body, "-NAK") {
			return err
		}
		stream, err := s.run.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if have := stream.CachedInfo().Created; !have.Equal(created) {
			return &RecreatedError{Stream: name, Want: created, Have: have}
		}
		_, err = stream.GetMsg(ctx, sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return stream.DeleteMsg(ctx, sequence)
	})
}

// sampleOf reads the group and the sample from a ticket's subject.
func sampleOf(subject string) (group string, sample int, ok bool) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 3 {
		return "", 0, false
	}
	sample, err := strconv.Atoi(tokens[len(tokens)-1])
	return tokens[len(tokens)-2], sample, err == nil && sample >= 0
}

// ackTimeout bounds the wait for the answer to an acknowledgement.
const ackTimeout = 2 * time.Second

// ack sends an acknowledgement of any kind, once, and waits until the broker has confirmed it.
func (r *Run) ack(ctx context.Context, reply, body string) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err := r.nc.RequestWithContext(ctx, reply, []byte(body))
	return err
}
