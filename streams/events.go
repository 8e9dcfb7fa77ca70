package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// emitTimeout bounds how long an event may hold up the work that it tells of.
const emitTimeout = time.Second

// Emit stores an event. Nothing depends on events, so it tries once, for a second at most, and the caller may log the
// error and go on.
func (r *Run) Emit(ctx context.Context, event *schemas.Event) error {
	if err := r.own(event.Run, event.Validate()); err != nil {
		return err
	}
	data, err := schemas.Marshal(event)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, emitTimeout)
	defer cancel()
	subject := r.names.eventSubject()
	err = r.conn.guard(ctx, subject, func(ctx context.Context) error {
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
	EventsFromNow   EventsFrom = iota // those stored from now on
	EventsFromStart                   // all that are kept, oldest first
)

// FollowEvents calls fn with each event in the order stored, once each, also across a broker's restart, and goes on with
// the events of a stream that is made anew. It returns nil when ctx ends. An event that cannot be read is logged and
// skipped.
func (r *Run) FollowEvents(ctx context.Context, from EventsFrom, fn func(*schemas.Event)) error {
	var at Position
	if from == EventsFromNow {
		err := r.call(ctx, "follow events", r.names.events, func(ctx context.Context) error {
			s, err := r.js.Stream(ctx, r.names.events)
			if err == nil {
				at.Created, at.Sequence = s.CachedInfo().Created, s.CachedInfo().State.LastSeq
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		if err := r.followEventsOnce(ctx, &at, 0, fn); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// PastEvents calls fn with the newest events that are stored, at most so many, oldest first, as far as the stream reached
// when the call began. An event that cannot be read is logged and skipped.
func (r *Run) PastEvents(ctx context.Context, most uint64, fn func(*schemas.Event)) error {
	var state jetstream.StreamState
	var at Position
	err := r.call(ctx, "read events", r.names.events, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, r.names.events)
		if err == nil {
			state, at.Created = s.CachedInfo().State, s.CachedInfo().Created
		}
		return err
	})
	if err != nil || state.Msgs == 0 {
		return err
	}
	at.Sequence = state.FirstSeq - 1
	if state.LastSeq-at.Sequence > most {
		at.Sequence = state.LastSeq - most
	}
	for at.Sequence < state.LastSeq {
		if err := r.followEventsOnce(ctx, &at, state.LastSeq, fn); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
	return nil
}

// followEventsOnce reads on after a position until reading breaks, the stream is another, or it has come to a sequence;
// until 0 has no end.
func (r *Run) followEventsOnce(ctx context.Context, at *Position, until uint64, fn func(*schemas.Event)) error {
	var messages jetstream.MessagesContext
	reading, stop := r.untilReconnected(ctx)
	defer stop()
	err := r.callWaiting(reading, "follow events", r.names.events, func(ctx context.Context) error {
		created, err := r.created(ctx, r.names.events)
		if err != nil {
			return err
		}
		if !created.Equal(at.Created) {
			*at = Position{Created: created}
		}
		consumer, err := r.js.OrderedConsumer(ctx, r.names.events, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: at.Sequence + 1,
		})
		if err == nil {
			messages, err = consumer.Messages()
		}
		return err
	})
	if err != nil {
		if reading.Err() != nil {
			return wait(ctx, backoffMin) // the connection came back while reading began: begin again
		}
		return err
	}
	defer messages.Stop()
	for {
		waiting, cancel := context.WithTimeout(reading, followPoll)
		m, err := messages.Next(jetstream.NextContext(waiting))
		idle := waiting.Err() != nil
		cancel()
		switch {
		case reading.Err() != nil:
			return nil
		case err != nil && idle:
			// Silence may be that of a stream which is gone.
			if now, err := r.created(ctx, r.names.events); err == nil && !now.Equal(at.Created) {
				return nil
			}
			continue
		case errors.Is(err, jetstream.ErrMsgIteratorClosed), errors.Is(err, jetstream.ErrNoHeartbeat):
			return wait(ctx, backoffMin)
		case err != nil:
			if !transient(err) {
				return fmt.Errorf("follow events: %w", err)
			}
			return wait(ctx, backoffMin)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		if meta.Sequence.Stream <= at.Sequence {
			continue
		}
		at.Sequence = meta.Sequence.Stream
		event := new(schemas.Event)
		if err := schemas.Unmarshal(m.Data(), event); err != nil {
			r.log.Warn("unreadable event skipped", "sequence", at.Sequence, "err", err)
		} else {
			fn(event)
		}
		if until > 0 && at.Sequence >= until {
			return nil
		}
	}
}
