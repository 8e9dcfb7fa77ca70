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

	"github.com/nats-io/nats.go"
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

	demand demand

	mu     sync.Mutex
	closed bool
	known  identity
	// identifying has room for the only call that asks the broker for the identity.
	identifying chan struct{}
}

// identity describes the stream that the source takes tickets from, as last read.
type identity struct {
	created time.Time
	lease   time.Duration
	// at is when the broker was asked, and reconnects how often the connection had been made again by then.
	at         time.Time
	reconnects uint64
}

// identityAge bounds how long a source uses the description of its stream, and of the length of a lease, before it asks the broker
// again. After a reconnection, or a request that failed, it asks at once.
//
// A stream that is removed and made anew while the connection lasts gives no sign to a client that only acknowledges: the acknowledgement
// of an old ticket would end the new ticket of that sequence. And an operator may change the length of a lease while the run goes on. So
// both are asked for, in two requests, STREAM.INFO and CONSUMER.INFO: the answers are in the broker's memory, each takes it some 50 us, and
// a source makes them once in 30 s, however many leases are open. 1,000 producers take 0.3 % of a core.
const identityAge = 30 * time.Second

// taken is a message from the broker, and when the stream that it came from was created.
type taken struct {
	msg     *nats.Msg
	at      time.Time
	created time.Time
}

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
		demand: demand{again: make(chan struct{}, 1)}, identifying: make(chan struct{}, 1),
	}
	if options.MaxLeases > 0 {
		s.slots = make(chan struct{}, options.MaxLeases)
	}
	err := r.callBroker(ctx, "take tickets", r.names.tickets, func(ctx context.Context) error {
		_, err := s.identifyStream(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.life, s.cancel = context.WithCancel(ctx)
	s.tasks.Go(s.pumpTickets)
	return s, nil
}

// Close ends the source; open leases are lost. It returns when every goroutine of the source has ended.
func (s *TicketSource) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
}

// startPulling runs a goroutine of the source, and reports false where the source is closed.
func (s *TicketSource) startPulling(task func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tasks.Go(task)
	}
	return !s.closed
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
	l, err := s.takeTicket(ctx)
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

// identifyStream asks the broker which stream the tickets come from, and how they are leased.
func (s *TicketSource) identifyStream(ctx context.Context) (identity, error) {
	now := identity{at: time.Now(), reconnects: s.run.nc.Stats().Reconnects}
	stream, err := s.run.js.Stream(ctx, s.run.names.tickets)
	if err != nil {
		return identity{}, err
	}
	consumer, err := stream.Consumer(ctx, durableProducers)
	if err != nil {
		return identity{}, err
	}
	now.created, now.lease = stream.CachedInfo().Created, consumer.CachedInfo().Config.AckWait
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.known.created; !before.IsZero() && !before.Equal(now.created) {
		s.log.Warn("the broker's tickets were made anew: leases of the old ones are lost", "before", before, "created", now.created)
	}
	s.known = now
	return now, nil
}

// currentIdentity is the identity of the stream, read again where it may have changed: by a single caller, for whom the others wait.
func (s *TicketSource) currentIdentity(ctx context.Context) (identity, error) {
	if known, ok := s.freshIdentity(); ok {
		return known, nil
	}
	select {
	case s.identifying <- struct{}{}:
	case <-ctx.Done():
		return identity{}, context.Cause(ctx)
	}
	defer func() { <-s.identifying }()
	if known, ok := s.freshIdentity(); ok {
		return known, nil
	}
	return s.identifyStream(ctx)
}

// freshIdentity is the identity as last read, and whether that is to be relied on.
func (s *TicketSource) freshIdentity() (known identity, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.known.reconnects == s.run.nc.Stats().Reconnects && time.Since(s.known.at) < identityAge
}

// doubtIdentity makes the next use of the identity read it again.
func (s *TicketSource) doubtIdentity() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.at = time.Time{}
}

// checkSameStream fails with [ErrStreamRecreated] where the tickets' stream was not created at that time. In another stream the reply
// subject of a ticket belongs to another ticket: an acknowledgement of the old ticket would end the other.
func (s *TicketSource) checkSameStream(ctx context.Context, created time.Time) error {
	now, err := s.currentIdentity(ctx)
	if err == nil && !now.created.Equal(created) {
		err = &RecreatedError{Stream: s.run.names.tickets, Want: created, Have: now.created}
	}
	return err
}

// leaseLength is how long a lease lasts from when the broker receives its renewal.
func (s *TicketSource) leaseLength() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.lease
}

func (s *TicketSource) takeTicket(ctx context.Context) (*Lease, error) {
	for {
		t, err := s.awaitTicket(ctx)
		if err != nil {
			return nil, err
		}
		l, err := s.admitTicket(ctx, t)
		if err != nil { // as when ctx has ended: the next taker need not wait until this lease lapses
			s.putTicketBack(t)
		}
		if err != nil || l != nil {
			return l, err
		}
	}
}

// admitTicket turns a message into a lease. It returns nil, nil where the message was refused.
func (s *TicketSource) admitTicket(ctx context.Context, t taken) (*Lease, error) {
	meta, err := t.msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("take ticket: read metadata: %w", err)
	}
	from := origin{stream: s.run.names.tickets, subject: t.msg.Subject, sequence: meta.Sequence.Stream}
	ticket := new(schemas.Ticket)
	if reason, err := s.judgeTicket(t.msg, ticket); err != nil {
		return nil, s.refuseTicket(ctx, t, from, reason, err.Error())
	}
	sent := int(meta.NumDelivered)
	released, err := s.run.readReleased(ctx, t.msg.Subject, sent)
	if err != nil {
		return nil, err
	}
	delivery := sent - released
	if limit := s.run.topology.MaxDeliver; limit > 0 && delivery > limit {
		return nil, s.refuseTicket(ctx, t, from, schemas.ReasonPoisoned, fmt.Sprintf("delivered %d times", limit))
	}
	l := &Lease{
		Ticket: ticket, Delivery: delivery, sent: sent,
		source: s, msg: t.msg, from: from, created: t.created, lost: make(chan struct{}), ended: make(chan struct{}),
		free: sync.OnceFunc(s.freeSlot),
	}
	deadline := t.at.Add(s.leaseLength())
	if !s.startPulling(func() { l.keepLease(deadline) }) {
		return nil, fmt.Errorf("take ticket: source: %w", ErrClosed)
	}
	return l, nil
}

// judgeTicket decodes a ticket and returns its fault.
func (s *TicketSource) judgeTicket(msg *nats.Msg, ticket *schemas.Ticket) (schemas.Reason, error) {
	if err := schemas.Unmarshal(msg.Data, ticket); err != nil {
		return decodeReason(err), err
	}
	if ticket.Run != s.run.run {
		return schemas.ReasonForeign, fmt.Errorf("ticket of run %q in run %q", ticket.Run, s.run.run)
	}
	if err := s.run.checkTicket(ticket); err != nil {
		return schemas.ReasonMalformed, err
	}
	if want := s.run.names.ticketSubject(ticket.Task, ticket.Group, ticket.Sample); msg.Subject != want {
		return schemas.ReasonForeign, fmt.Errorf("ticket %s came under subject %s, not %s", ticket.ID, msg.Subject, want)
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

// refuseTicket moves a ticket to REJECTED and closes its sample, so that the trainer does not wait for it. The subject names the sample,
// even where the ticket cannot be read.
func (s *TicketSource) refuseTicket(ctx context.Context, t taken, from origin, reason schemas.Reason, detail string) error {
	m, err := s.run.newRejection(from, reason, detail, t.msg.Data)
	if err != nil {
		return err
	}
	if err := s.run.storeRejection(ctx, m); err != nil {
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
	err = s.endTicket(ctx, t.msg.Reply, from.sequence, t.created, ackTerm(reason))
	if errors.Is(err, ErrStreamRecreated) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // it went with its stream
	}
	return err
}

// endTicket acknowledges a ticket for good and waits until the broker has confirmed it. A broker that was killed may have lost the record
// that it delivered the ticket. It then ignores the acknowledgement, without an answer, and will deliver the ticket again: so a
// ticket that is done is removed from the stream where no answer comes.
func (s *TicketSource) endTicket(ctx context.Context, reply string, sequence uint64, created time.Time, w ackKind) error {
	name := s.run.names.tickets
	return s.run.callBroker(ctx, "end a ticket", name, func(ctx context.Context) error {
		if err := s.checkSameStream(ctx, created); err != nil {
			return err
		}
		err := s.run.confirmAck(ctx, reply, w)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || w.goesBack() {
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
