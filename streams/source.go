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
	// Producer names who takes; it signs the markers that close a poisoned or unreadable ticket's sample. ""
	// is "tickets".
	Producer string
}

// TicketSource hands out leases. It is safe for concurrent use.
type TicketSource struct {
	run      *Run
	producer string
	slots    chan struct{} // nil without a bound
	log      *slog.Logger

	// life ends with the source; what runs for it runs on its behalf.
	life   context.Context //nolint:containedctx // handed to what it starts later
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	demand chan struct{}
	ready  chan taken
	left   chan struct{}

	mu     sync.Mutex
	takers int
	known  identity
}

// identity is what the source knows of the stream that it takes tickets from.
type identity struct {
	created time.Time
	lease   time.Duration
	// The broker was asked for it at a time, over a connection that had been made anew so often.
	at         time.Time
	reconnects uint64
}

// identityAge bounds how long a source goes without asking the broker whether its stream is the same, and how long a
// lease is there. After a reconnection, or a request that failed, it asks at once.
const identityAge = 30 * time.Second

// taken is a message fresh from the broker, and when the stream that it came from was created.
type taken struct {
	msg     jetstream.Msg
	at      time.Time
	created time.Time
}

// How long one request for a ticket stands at the broker, and how often the broker says that it still does.
const (
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
)

// Tickets returns a source of leases. ctx is its life: when it ends, leases are no longer kept alive and are
// lost, so end it only when the open ones are ended.
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

// Close ends the source; leases that are open are lost. It returns when nothing of it runs any more.
func (s *TicketSource) Close() {
	s.cancel()
	s.tasks.Wait()
}

// Take waits for a ticket and leases it. Tickets that cannot be read, and those handed out too often, go to
// REJECTED and their sample is closed; Take goes on to the next. It fails when ctx or the source ends.
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

// current is the identity of the stream, asked for again where it may have changed.
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

// doubt has the identity asked for again before it is used.
func (s *TicketSource) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.at = time.Time{}
}

// same fails with [ErrStreamRecreated] where the tickets' stream is no longer the one created then. In another stream
// the reply subject of a ticket is that of another ticket: a word on the one would end the other.
func (s *TicketSource) same(ctx context.Context, created time.Time) error {
	now, err := s.current(ctx)
	if err == nil && !now.created.Equal(created) {
		err = &RecreatedError{Stream: s.run.names.tickets, Want: created, Have: now.created}
	}
	return err
}

// length is how long a lease lasts from when the broker hears of it.
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
		if err != nil { // as when ctx has ended: the next taker need not wait until its lease has lapsed
			s.putBack(t)
		}
		if err != nil || l != nil {
			return l, err
		}
	}
}

// enter counts a taker in, and leave one out that goes without a ticket. One that gets a ticket is counted out by
// hand, so that the pump never asks for a ticket on its behalf again.
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

// pump asks the broker for one ticket at a time, and only while somebody waits for one: a ticket that sits in
// a buffer is a lease that runs for nobody.
func (s *TicketSource) pump(consumer jetstream.Consumer) {
	for {
		select {
		case <-s.demand:
		case <-s.life.Done():
			return
		}
		for s.wanted() && s.life.Err() == nil {
			if t, ok := s.pull(consumer); ok {
				s.hand(t)
			}
		}
	}
}

// hand gives a ticket to whoever waits, or back to the broker when nobody does any more.
func (s *TicketSource) hand(t taken) {
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

// putBack gives back a ticket that nobody waits for any more, as one that was not worked on.
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
	handed := int(meta.NumDelivered)
	released, err := s.run.released(ctx, t.msg.Subject(), handed)
	if err != nil {
		return nil, err
	}
	delivery := handed - released
	if limit := s.run.topology.MaxDeliver; limit > 0 && delivery > limit {
		return nil, s.refuse(ctx, t, from, ReasonPoisoned, fmt.Sprintf("handed out %d times", limit))
	}
	l := &Lease{
		Ticket: ticket, Delivery: delivery, handed: handed,
		source: s, msg: t.msg, from: from, created: t.created, lost: make(chan struct{}), ended: make(chan struct{}),
		free: sync.OnceFunc(s.freeSlot),
	}
	s.tasks.Go(func() { l.keep(t.at.Add(s.length())) })
	return l, nil
}

// judge reads a ticket and says what is wrong with it.
func (s *TicketSource) judge(msg jetstream.Msg, ticket *schemas.Ticket) (Reason, error) {
	if err := schemas.Unmarshal(msg.Data(), ticket); err != nil {
		return decodeReason(err), err
	}
	if ticket.Run != s.run.run {
		return ReasonForeign, fmt.Errorf("ticket of run %q in run %q", ticket.Run, s.run.run)
	}
	if err := s.run.checkTicket(ticket); err != nil {
		return ReasonMalformed, err
	}
	if want := s.run.names.ticketSubject(ticket.Task, ticket.Group, ticket.Sample); msg.Subject() != want {
		return ReasonForeign, fmt.Errorf("ticket %s came under subject %s, not %s", ticket.ID, msg.Subject(), want)
	}
	return "", nil
}

// decodeReason is the reason for a message that schemas.Unmarshal refused.
func decodeReason(err error) Reason {
	switch {
	case errors.Is(err, schemas.ErrVersion):
		return ReasonVersion
	case errors.Is(err, schemas.ErrKind):
		return ReasonForeign
	}
	return ReasonMalformed
}

// refuse moves a ticket to REJECTED and closes its sample, so that nobody waits for it. The subject says which
// sample it is, even where the ticket cannot be read.
func (s *TicketSource) refuse(ctx context.Context, t taken, from origin, reason Reason, detail string) error {
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

// end sends the last word on a ticket and waits until the broker has confirmed it. A broker that was killed may
// have forgotten that it handed the ticket out, and then passes over a word on it without an answer, until it
// hands it out again: so a ticket that is done is removed where no answer comes.
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
