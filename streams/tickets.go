package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// issueInFlight bounds the publishes of an Issue that wait for their acknowledgement.
const issueInFlight = 16

// Issue stores tickets for producers to take, in the order of the arguments as long as the broker takes them at the first attempt.
// It waits while MaxTickets are outstanding. When it fails, some of the tickets may be stored: issue all of them again.
//
// Issue is idempotent by the id of a ticket: an outstanding ticket is never stored twice, and a ticket that is done is not stored
// again within the dedupe window. A trainer that starts again may therefore issue its open tickets again, and none is rolled out
// twice. After Issue has succeeded each ticket has been stored once, but need not be outstanding still. A sample whose trajectory
// was lost is issued again under another attempt, which gives its ticket another id.
func (r *Run) Issue(ctx context.Context, tickets ...*schemas.Ticket) error {
	for _, t := range tickets {
		if err := r.checkTicket(t); err != nil {
			return fmt.Errorf("issue ticket %s: %w", t.ID, err)
		}
	}
	if err := r.checkSeat(ctx); err != nil {
		return fmt.Errorf("issue tickets: %w", err)
	}
	for some := range slices.Chunk(tickets, issueInFlight) {
		if err := r.issueTogether(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// issueTogether sends tickets in turn without waiting in between. Then it sends the tickets that the broker did not take
// again, singly.
func (r *Run) issueTogether(ctx context.Context, tickets []*schemas.Ticket) error {
	sent := make([]jetstream.PubAckFuture, len(tickets))
	messages := make([]*nats.Msg, len(tickets))
	for i, t := range tickets {
		data, err := schemas.Marshal(t)
		if err != nil {
			return fmt.Errorf("encode ticket %s: %w", t.ID, err)
		}
		messages[i] = &nats.Msg{Subject: r.names.ticketSubject(t.Task, t.Group, t.Sample), Data: data}
	}
	_ = r.conn.guardCall(ctx, r.names.subjectPrefix()+"tickets.", func(ctx context.Context) error {
		for i, t := range tickets {
			sent[i], _ = r.js.PublishMsgAsync(copyMessage(messages[i]), jetstream.WithMsgID(t.ID), jetstream.WithExpectStream(r.names.tickets))
		}
		for i, future := range sent {
			if future == nil {
				continue
			}
			select {
			case <-future.Ok():
				messages[i] = nil
			case err := <-future.Err():
				r.log.Debug("ticket not taken at the first attempt", "ticket", tickets[i].ID, "err", err)
			case <-ctx.Done():
			}
		}
		return nil
	})
	for i, m := range messages {
		if m == nil {
			continue
		}
		if err := r.issueTicket(ctx, tickets[i].ID, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) issueTicket(ctx context.Context, id string, m *nats.Msg) error {
	return retryCall(ctx, r.log, "issue ticket "+id, IsTransient, func(ctx context.Context) error {
		err := r.conn.guardCall(ctx, m.Subject, func(ctx context.Context) error {
			return r.publishWhole(ctx, r.names.tickets, m.Subject, id, nil, m.Data)
		})
		if seam.HasCode(err, codeStoreFailed) && strings.Contains(err.Error(), "per subject") {
			return nil // outstanding already
		}
		return err
	})
}

// copyMessage is a message that the client library may change.
func copyMessage(m *nats.Msg) *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Header: copyHeader(m.Header), Data: m.Data}
}

func (r *Run) checkTicket(t *schemas.Ticket) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if t.Run != r.run {
		return fmt.Errorf("it is of run %q, this is %q", t.Run, r.run)
	}
	if want := t.Group + "-" + strconv.Itoa(t.Sample); t.ID != want {
		return fmt.Errorf("%w: id %q: must be %q, of its group and sample", ErrName, t.ID, want)
	}
	return errors.Join(CheckName("task", t.Task), CheckName("group", t.Group))
}

// OutstandingTickets counts the tickets that are issued and not done, leased ones included.
func (r *Run) OutstandingTickets(ctx context.Context) (int, error) {
	var n int
	err := r.callBroker(ctx, "count tickets", r.names.tickets, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, r.names.tickets)
		if err == nil {
			n = int(s.CachedInfo().State.Msgs)
		}
		return err
	})
	return n, err
}
