package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamInfo is how much a stream of a run holds and may hold.
type StreamInfo struct {
	// Name is the stream's name without the run: TICKETS, TRAJECTORIES, REJECTED, EVENTS, CONTROL, WEIGHTS or SHARDS.
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

// namedStream is a stream and its name without the run.
type namedStream struct{ name, stream string }

// namedStreams are the streams of a run that have a name for people.
func (n names) namedStreams() []namedStream {
	return []namedStream{
		{"TICKETS", n.tickets},
		{"TRAJECTORIES", n.trajectories},
		{"REJECTED", n.rejected},
		{"EVENTS", n.events},
		{"JOURNAL", n.journal},
		{"CONTROL", "KV_" + n.control},
		{"WEIGHTS", "KV_" + n.weights},
		{"SHARDS", "OBJ_" + n.shards},
	}
}

// streamNamed is the stream of a name for people, in letters of either case. It fails with [ErrName] where there is none.
func (n names) streamNamed(name string) (string, error) {
	all := n.namedStreams()
	i := slices.IndexFunc(all, func(s namedStream) bool { return strings.EqualFold(s.name, name) })
	if i < 0 {
		var known []string
		for _, s := range all {
			known = append(known, s.name)
		}
		return "", fmt.Errorf("%w: stream %.40q: want %s", ErrName, name, strings.Join(known, ", "))
	}
	return all[i].stream, nil
}

// StreamInfos describe the streams of a run, without the streams that the role of the connection may not look at.
func (r *Run) StreamInfos(ctx context.Context) ([]StreamInfo, error) {
	var infos []StreamInfo
	for _, s := range r.names.namedStreams() {
		info, err := r.streamInfo(ctx, s)
		switch {
		case errors.Is(err, ErrDenied), errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return nil, err
		default:
			infos = append(infos, info)
		}
	}
	return infos, nil
}

func (r *Run) streamInfo(ctx context.Context, s namedStream) (out StreamInfo, err error) {
	err = r.callBroker(ctx, "look at stream "+s.stream, s.stream, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, s.stream)
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		out = StreamInfo{
			Name: s.name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxMessages: max(0, info.Config.MaxMsgs), MaxBytes: max(0, info.Config.MaxBytes),
			First: info.State.FirstSeq, Last: info.State.LastSeq,
		}
		if info.State.Msgs > 0 {
			out.Oldest, out.Newest = info.State.FirstTime, info.State.LastTime
		}
		return nil
	})
	return out, err
}
