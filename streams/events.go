package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// emitTimeout bounds how long an event may hold up the work that emits it.
const emitTimeout = time.Second

// Emit stores an event. Nothing depends on events, so it tries once, for a second at most, and the caller may log the
// error and go on.
func (r *Run) Emit(ctx context.Context, event *schemas.Event) error {
	if err := r.checkOwn(event.Run, event.Validate()); err != nil {
		return err
	}
	data, err := schemas.Marshal(event)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, emitTimeout)
	defer cancel()
	subject := r.names.eventSubject()
	err = r.conn.guardCall(ctx, subject, func(ctx context.Context) error {
		_, err := r.js.Publish(ctx, subject, data)
		return err
	})
	if err != nil {
		return fmt.Errorf("emit event %s: %w", event.Type, err)
	}
	return nil
}

// EventsFrom says which events are followed.
type EventsFrom int

// Where following begins.
const (
	EventsFromNow   EventsFrom = iota // the events stored from now on
	EventsFromStart                   // all events that are kept, oldest first
)

// FollowEvents calls fn once with each event, in the order in which they were stored, also over a restart of the broker; a stream
// that was made anew is read from its beginning. It returns nil when ctx ends. An event that cannot be read is logged and skipped.
func (r *Run) FollowEvents(ctx context.Context, from EventsFrom, fn func(*schemas.Event)) error {
	told, err := r.listenStored("events")
	if err != nil {
		return err
	}
	defer told.stopListening()
	poll := time.NewTicker(followPoll)
	defer poll.Stop()
	next, created := uint64(1), time.Time{}
	var newest, read time.Time // when the newest event that was read was stored; the time up to which an older copy was read already
	unread := func(at time.Time) bool {
		if !at.After(read) {
			return false
		}
		newest = at
		return true
	}
	for look := true; ctx.Err() == nil; {
		if look {
			info, err := r.eventsInfo(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, jetstream.ErrStreamNotFound):
				if seam.Wait(ctx, followAbsent) != nil {
					return nil
				}
				continue
			case err != nil:
				return err
			case created.IsZero() && from == EventsFromNow:
				next, newest = info.State.LastSeq+1, info.State.LastTime
			case !created.Equal(info.Created):
				next = 1
			case next > info.State.LastSeq+1: // the stream came back as an older copy, which may hold newer events already
				next, read = 1, newest
			}
			created, look = info.Created, false
		}
		if next, err = r.readEvents(ctx, next, math.MaxUint64, unread, func(e *schemas.Event, _ time.Time) { fn(e) }); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("follow events: %w", err)
		}
		read = time.Time{}
		select {
		case <-ctx.Done():
		case sequence := <-told.again:
			// The stream begins anew, or may begin anew while nothing was read of it, or the connection was lost.
			look = sequence+1 < next || next == 1 || told.back.Swap(false)
		case <-poll.C:
			look = true
		}
	}
	return nil
}

func (r *Run) eventsInfo(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	err = r.callBroker(ctx, "follow events", r.names.events, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, r.names.events)
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	return info, err
}

// PastEvents calls fn with the newest stored events, at most the number given, oldest first, as far as the stream reached when the
// call began. An event that cannot be read is logged and skipped.
func (r *Run) PastEvents(ctx context.Context, most uint64, fn func(*schemas.Event)) error {
	_, err := r.EventsAfter(ctx, EventsPlace{}, most, func(e *schemas.Event, _ time.Time) { fn(e) })
	return err
}

// EventsPlace is how far the events were read, and of which stream. The zero value is before the first event of any.
type EventsPlace struct {
	next    uint64
	created time.Time
}

// EventsRead is the result of a read of events.
type EventsRead struct {
	// To is where the next call goes on.
	To EventsPlace
	// Now is the broker's time when the call began: compared with it, the age of an event does not depend on the clocks of
	// two machines.
	Now time.Time
	// Anew says that the stream is not the stream that was read before, or an older copy of it. Nothing was read then, and To is zero.
	Anew bool
}

// EventsAfter is [Run.PastEvents] of the events after a place, each with the time at which the broker stored it: a caller that calls it
// again and again reads each event once.
func (r *Run) EventsAfter(
	ctx context.Context, after EventsPlace, most uint64, fn func(e *schemas.Event, stored time.Time),
) (EventsRead, error) {
	info, err := r.eventsInfo(ctx)
	if err != nil {
		return EventsRead{}, err
	}
	read := EventsRead{To: EventsPlace{info.State.LastSeq + 1, info.Created}, Now: info.TimeStamp}
	if after.next > 0 && (!after.created.Equal(info.Created) || after.next > info.State.LastSeq+1) {
		return EventsRead{Now: info.TimeStamp, Anew: true}, nil
	}
	from, last := max(info.State.FirstSeq, after.next), info.State.LastSeq
	if info.State.Msgs == 0 || from > last {
		return read, nil
	}
	if last-from >= most {
		from = last - most + 1
	}
	all := func(time.Time) bool { return true }
	if _, err := r.readEvents(ctx, from, last, all, fn); err != nil {
		return EventsRead{}, fmt.Errorf("read events: %w", err)
	}
	return read, nil
}

// readEvents reads the events from a sequence to until that the stream holds, and of these the events whose time of storing wanted
// accepts. It returns the sequence to go on from.
func (r *Run) readEvents(
	ctx context.Context, next, until uint64, wanted func(stored time.Time) bool, fn func(e *schemas.Event, stored time.Time),
) (uint64, error) {
	for more := true; more && next <= until; {
		w := seam.Window{Messages: int(min(256, until-next+1)), Bytes: 4 << 20}
		var err error
		next, more, err = r.readMessages(ctx, r.names.events, r.names.eventSubject(), next, w, func(m seam.Message) error {
			event := new(schemas.Event)
			if m.Sequence > until || !wanted(m.At) {
				return nil
			}
			err := schemas.Unmarshal(m.Data, event)
			if err == nil {
				err = r.checkOwn(event.Run, event.Validate())
			}
			if err != nil {
				r.log.Warn("unreadable event skipped", "sequence", m.Sequence, "err", err)
				return nil
			}
			// A stranger's event may hold control characters for a terminal.
			event.Worker, event.Message = cleanDetail(event.Worker), cleanDetail(event.Message)
			fn(event, m.At)
			return ctx.Err()
		})
		if err != nil {
			return next, err
		}
	}
	return next, nil
}
