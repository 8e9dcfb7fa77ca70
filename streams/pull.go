package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// How long a request for tickets waits at the broker, and how often the broker confirms that it still waits. A request of which the
// broker says nothing for two heartbeats is given up.
const (
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
)

// A source asks for as many tickets as takers wait, so that a producer whose broker is far away does not wait for one ticket after
// the other.
const (
	// maxAsked bounds the tickets that a source has asked for and that have not come.
	maxAsked = 64
	// maxPulls bounds the requests with which it asks: the broker keeps 1<<14 of all producers. Takers beyond wait for the end of a
	// request, which takes a round trip where there are tickets.
	maxPulls = 4
	// withdrawAfter is how long requests outlive the last taker, for a taker that comes soon; a ticket that comes in between is given back.
	withdrawAfter = 250 * time.Millisecond
)

// demand has the takers that wait for tickets, and the requests that were made for them.
//
// Invariant: when tickets are asked for, no more are asked for than takers wait.
type demand struct {
	mu sync.Mutex
	// waiting are the takers, longest first: each waits at a channel that has room for its ticket.
	waiting []chan taken
	// asked counts the tickets that were asked for and have not come, pulls the requests.
	asked, pulls int
	// again has a value when there may be something to ask for.
	again chan struct{}
	// asking is the life of the requests, withdrawn ends it; nil where the next request needs another.
	asking    context.Context //nolint:containedctx // of the requests that are made later
	withdrawn context.CancelFunc
}

// enterQueue puts a taker in the queue.
func (d *demand) enterQueue(taker chan taken) {
	d.mu.Lock()
	d.waiting = append(d.waiting, taker)
	d.mu.Unlock()
	d.wakePump()
}

// leaveQueue takes a taker that gives up out of the queue. Where a ticket had just come for it, leave returns the ticket.
func (d *demand) leaveQueue(taker chan taken) (t taken, came bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.Index(d.waiting, taker)
	if at < 0 {
		return <-taker, true
	}
	d.waiting = slices.Delete(d.waiting, at, at+1)
	if len(d.waiting) == 0 {
		time.AfterFunc(withdrawAfter, d.withdrawRequests)
	}
	return taken{}, false
}

// withdrawRequests ends the requests where no taker waits: their tickets would only be given back.
func (d *demand) withdrawRequests() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 && d.withdrawn != nil {
		d.withdrawn()
		d.withdrawn = nil
	}
}

// handTicket gives a ticket to the taker that has waited longest, and reports false where none waits. asked is 1
// for a ticket that was asked for, and 0 for a ticket that another taker passes on.
func (d *demand) handTicket(t taken, asked int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked -= asked
	if len(d.waiting) == 0 {
		return false
	}
	d.waiting[0] <- t
	d.waiting = slices.Delete(d.waiting, 0, 1)
	d.wakePump()
	return true
}

// planRequest is how many tickets to ask for now, 0 for none, and the life of that request, which ends with life at the latest. While more
// than half of maxAsked are on their way none is asked for, so that a request brings many.
func (d *demand) planRequest(life context.Context) (context.Context, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(d.waiting), maxAsked) - d.asked
	if n <= 0 || d.pulls == maxPulls || d.asked > maxAsked/2 {
		return nil, 0
	}
	if d.withdrawn == nil {
		d.asking, d.withdrawn = context.WithCancel(life)
	}
	d.asked += n
	d.pulls++
	return d.asking, n
}

// noteRequestEnd notes the end of a request of which so many tickets did not come.
func (d *demand) noteRequestEnd(missing int) {
	d.mu.Lock()
	d.asked -= missing
	d.pulls--
	d.mu.Unlock()
	d.wakePump()
}

// wakePump has the pump see whether there is something to ask for.
func (d *demand) wakePump() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// awaitTicket waits for a ticket from the broker.
func (s *TicketSource) awaitTicket(ctx context.Context) (taken, error) {
	if err := ctx.Err(); err != nil {
		return taken{}, context.Cause(ctx)
	}
	taker := make(chan taken, 1)
	s.demand.enterQueue(taker)
	var err error
	select {
	case t := <-taker:
		return t, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.life.Done():
		err = fmt.Errorf("take ticket: source: %w", ErrClosed)
	}
	if t, came := s.demand.leaveQueue(taker); came && !s.demand.handTicket(t, 0) {
		s.putTicketBack(t)
	}
	return taken{}, err
}

// pumpTickets asks the broker for tickets while takers wait. A ticket is handed on as it comes, or given back: a ticket in a buffer is a
// lease that runs for nobody.
func (s *TicketSource) pumpTickets() {
	for {
		select {
		case <-s.demand.again:
		case <-s.life.Done():
			return
		}
		if ctx, n := s.demand.planRequest(s.life); n > 0 {
			s.tasks.Go(func() { s.pullTickets(ctx, n) })
		}
	}
}

// pullTickets asks for n tickets and hands them on.
func (s *TicketSource) pullTickets(ctx context.Context, n int) {
	missing, err := s.fetchTickets(ctx, n)
	if err != nil && ctx.Err() == nil {
		s.log.Debug("no ticket from the broker; asking again", "err", err)
		s.doubtIdentity()
		_ = seam.Wait(ctx, reconnectWait)
	}
	s.demand.noteRequestEnd(missing)
}

// fetchTickets makes a request for n tickets, hands each on as it comes, and returns how many did not come. It returns when all have come,
// when the request has expired at the broker, and when ctx ends. The client library's own Fetch drops the messages that come after the end
// of its context: such tickets would be leased to nobody, and each would count as a delivery that failed.
func (s *TicketSource) fetchTickets(ctx context.Context, n int) (missing int, err error) {
	soon, cancel := context.WithTimeout(ctx, pullExpiry)
	defer cancel()
	now, err := s.currentIdentity(soon)
	if err != nil {
		return n, err
	}
	nc := s.run.nc
	back := make(chan struct{})
	defer s.run.conn.returns.watchReturns(sync.OnceFunc(func() { close(back) }))()
	if now.reconnects != nc.Stats().Reconnects {
		return n, errInterrupted
	}
	body, err := json.Marshal(pullRequest{Expires: pullExpiry, Batch: n, Heartbeat: pullHeartbeat})
	if err != nil {
		return n, err
	}
	// With room for the tickets, the heartbeats and the end of the request: the client drops a message that finds none.
	messages := make(chan *nats.Msg, n+16)
	inbox := nc.NewInbox()
	replies, err := nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return n, err
	}
	defer func() { _ = replies.Unsubscribe() }() // it fails where the connection is closed, or the subscription drained
	if err := nc.PublishRequest(s.run.conn.api+".CONSUMER.MSG.NEXT."+s.run.names.tickets+"."+durableProducers, inbox, body); err != nil {
		return n, err
	}
	for missing = n; missing > 0; {
		select {
		case m := <-messages:
			ticket, ended, err := pullReply(m)
			if ended || err != nil {
				return missing, err
			}
			if ticket {
				missing--
				s.deliverTicket(taken{msg: m, at: time.Now(), created: now.created})
			}
			continue
		case <-ctx.Done():
		case <-back:
			err = errInterrupted
		case <-time.After(2 * pullHeartbeat):
			err = jetstream.ErrNoHeartbeat
		}
		break
	}
	if missing == 0 {
		return 0, nil
	}
	// A ticket that the broker has sent already is handed on or given back, too.
	for _, m := range s.drainTickets(replies, messages) {
		if ticket, _, _ := pullReply(m); ticket && missing > 0 {
			missing--
			s.deliverTicket(taken{msg: m, at: time.Now(), created: now.created})
		}
	}
	return missing, err
}

// pullRequest is a request for messages as the broker reads it; durations in nanoseconds.
type pullRequest struct {
	Expires   time.Duration `json:"expires"`
	Batch     int           `json:"batch"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// pullReply reads a reply to a request for tickets: a ticket, a heartbeat, the end of a request that has expired, or an error.
func pullReply(m *nats.Msg) (ticket, ended bool, err error) {
	if m.Reply != "" { // to be acknowledged
		return true, false, nil
	}
	switch status := m.Header.Get("Status"); status {
	case "100": // a heartbeat
		return false, false, nil
	case "404", "408": // the request has expired
		return false, true, nil
	case "503":
		return false, true, nats.ErrNoResponders
	default:
		return false, true, fmt.Errorf("request for tickets: status %q: %s", status, m.Header.Get("Description"))
	}
}

// drainTickets ends a subscription and returns the messages that the broker had sent by then.
func (s *TicketSource) drainTickets(replies *nats.Subscription, messages <-chan *nats.Msg) []*nats.Msg {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), ackTimeout)
	defer cancel()
	return s.run.drainReplies(ctx, replies, messages)
}

// drainReplies ends a subscription, whose messages come into a channel, and returns the messages that the broker had sent by then.
func (r *Run) drainReplies(ctx context.Context, replies *nats.Subscription, messages <-chan *nats.Msg) (came []*nats.Msg) {
	// The broker answers in order: its messages from before it knew of the end come before the answer to the flush.
	if err := replies.Drain(); err == nil && r.nc.IsConnected() {
		err = r.nc.FlushWithContext(ctx)
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.log.Debug("messages may be on their way; their leases will lapse", "err", err)
		}
	}
	for {
		select {
		case m := <-messages:
			came = append(came, m)
		default:
			return came
		}
	}
}

// deliverTicket gives a ticket that was asked for to a waiting taker, or back to the broker where no taker waits any more.
func (s *TicketSource) deliverTicket(t taken) {
	if !s.demand.handTicket(t, 1) {
		s.tasks.Go(func() { s.putTicketBack(t) }) // each by itself: together they take one round trip
	}
}

// putTicketBack gives a ticket back to the broker without counting the delivery: nobody worked on it.
func (s *TicketSource) putTicketBack(t taken) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), ackTimeout)
	defer cancel()
	if err := s.checkSameStream(ctx, t.created); err != nil {
		s.log.Debug("ticket not returned; its lease will lapse", "err", err)
		return
	}
	released := 0
	meta, err := t.msg.Metadata()
	if err == nil {
		released, err = s.run.readReleased(ctx, t.msg.Subject, int(meta.NumDelivered))
	}
	if err == nil {
		err = s.run.storeReleased(ctx, t.msg.Subject, released+1)
	}
	if err != nil {
		s.log.Debug("a ticket given back unworked counts as a delivery", "err", err)
	}
	if err := s.run.sendAck(t.msg.Reply, ackNak); err != nil {
		s.log.Debug("ticket not returned; its lease will lapse", "err", err)
	}
}
