package streams

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamLook is what a stream of a run holds, and how much it may.
type StreamLook struct {
	// Name is the stream's without the run: TICKETS, TRAJECTORIES, REJECTED, EVENTS, CONTROL, WEIGHTS or SHARDS.
	Name string
	// Messages and Bytes are stored. MaxMessages and MaxBytes bound them; 0 is no bound.
	Messages    uint64
	Bytes       uint64
	MaxMessages int64
	MaxBytes    int64
	// First and Last are the sequences of the oldest and the newest message, Oldest and Newest when they were stored; the zero
	// time where the stream is empty.
	First, Last    uint64
	Oldest, Newest time.Time
}

// Look is what the streams of a run hold, those left out that the role of the connection may not look at.
func (r *Run) Look(ctx context.Context) ([]StreamLook, error) {
	n := r.names
	var out []StreamLook
	for _, s := range []struct{ name, stream string }{
		{"TICKETS", n.tickets},
		{"TRAJECTORIES", n.trajectories},
		{"REJECTED", n.rejected},
		{"EVENTS", n.events},
		{"CONTROL", "KV_" + n.control},
		{"WEIGHTS", "KV_" + n.weights},
		{"SHARDS", "OBJ_" + n.shards},
	} {
		err := r.call(ctx, "look at stream "+s.stream, s.stream, func(ctx context.Context) error {
			stream, err := r.js.Stream(ctx, s.stream)
			if err != nil {
				return err
			}
			info := stream.CachedInfo()
			look := StreamLook{
				Name: s.name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxMessages: max(0, info.Config.MaxMsgs), MaxBytes: max(0, info.Config.MaxBytes),
				First: info.State.FirstSeq, Last: info.State.LastSeq,
			}
			if info.State.Msgs > 0 {
				look.Oldest, look.Newest = info.State.FirstTime, info.State.LastTime
			}
			out = append(out, look)
			return nil
		})
		switch {
		case errors.Is(err, ErrDenied), errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}
