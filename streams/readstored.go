package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// StoredSpan are the messages of TRAJECTORIES whose sequences are above After, up to Last.
type StoredSpan struct {
	After, Last uint64
	Messages    []RawMessage
}

// RawMessage is a message as it was published, whether or not it can be read.
type RawMessage struct {
	// Sequence of the message; of a message in parts that of its first part.
	Sequence uint64
	Subject  string
	At       time.Time
	// Data is the whole message. A part of a message that is not whole is a message of its own.
	Data []byte
}

// errEnough ends a read.
var errEnough = errors.New("enough was read")

// storedWindow bounds the messages of a request.
const storedWindow = 1024

// ReadStored reads the messages that the stream holds above a sequence, up to another, or up to the last part of a message that the other
// would cut. It stops once it has so many bytes. Where the stream has purged messages above after the span begins later; it is empty where
// nothing up to upTo is left. What the feed has returned or acked changes nothing. It fails with [ErrStreamTruncated] where the stream has
// lost messages by the end of the read.
func (f *Feed) ReadStored(ctx context.Context, after, upTo uint64, bytes int) (*StoredSpan, error) {
	return f.run.ReadStored(ctx, f.start, f.book.lastKnown(), after, upTo, bytes)
}

// ReadStored is [Feed.ReadStored] of a reader that has no feed: of is the stream that it must be, known a message that the stream held. The
// sequence of of is not used.
func (r *Run) ReadStored(ctx context.Context, of Position, known Mark, after, upTo uint64, bytes int) (*StoredSpan, error) {
	info, err := r.identifyTrajectories(ctx, of)
	if err != nil {
		return nil, err
	}
	out, err := r.readStoredSpan(ctx, info.State, after, upTo, bytes)
	if err != nil || known.Sequence == 0 {
		return out, err
	}
	// A message that the broker lost before the read, or in its middle, is lacking now too.
	if info, err = r.identifyTrajectories(ctx, of); err != nil {
		return nil, err
	}
	if err := r.checkIntact(ctx, info.State, known); err != nil {
		return nil, fmt.Errorf("read stored trajectories: %w", err)
	}
	return out, nil
}

// readStoredSpan reads the messages of a stream in a state.
func (r *Run) readStoredSpan(ctx context.Context, state jetstream.StreamState, after, upTo uint64, bytes int) (*StoredSpan, error) {
	begin := max(after, max(state.FirstSeq, 1)-1)
	upTo = min(upTo, state.LastSeq)
	if begin >= upTo {
		return &StoredSpan{After: begin, Last: begin}, nil
	}
	j := partJoiner{StoredSpan: StoredSpan{After: begin, Last: begin}}
	for j.Last < upTo && j.bytes < bytes || len(j.parts) > 0 {
		before := j.Last
		window := seam.Window{Messages: storedWindow, Bytes: max(bytes, 1)}
		_, more, err := r.readMessages(ctx, r.names.trajectories, ">", j.Last+1, window, func(m seam.Message) error {
			if len(j.parts) == 0 && (m.Sequence > upTo || j.bytes >= bytes) {
				return errEnough
			}
			j.addStored(m)
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, fmt.Errorf("read stored trajectories: %w", err)
		}
		if err != nil || j.Last == before || !more {
			break
		}
	}
	j.endParts()
	if j.bytes < bytes { // what the stream lacks up to there was removed
		j.Last = max(j.Last, upTo)
	}
	return &j.StoredSpan, nil
}

// partJoiner gathers messages and joins those that are in parts.
type partJoiner struct {
	StoredSpan
	bytes int
	// parts are the parts so far of the message whose headers are whole.
	parts []RawMessage
	whole part
}

// addStored adds the next message of the stream.
func (j *partJoiner) addStored(m seam.Message) {
	j.bytes += len(m.Data)
	raw := RawMessage{Sequence: m.Sequence, Subject: m.Header.Get("Nats-Subject"), At: m.At.UTC(), Data: m.Data}
	p, split, err := parsePart(m.Header)
	goesOn := split && err == nil && len(j.parts) > 0 && p.hash == j.whole.hash && p.index == len(j.parts)+1 &&
		m.Sequence == j.parts[0].Sequence+uint64(len(j.parts))
	if !goesOn {
		j.endParts()
	}
	j.Last = m.Sequence
	if !split || err != nil || !goesOn && p.index != 1 || p.size > maxJoined {
		j.Messages = append(j.Messages, raw)
		return
	}
	j.whole, j.parts = p, append(j.parts, raw)
	if p.index < p.count {
		return
	}
	data := make([][]byte, len(j.parts))
	for i := range j.parts {
		data[i] = j.parts[i].Data
	}
	if whole, err := joinParts(p, data); err == nil {
		first := j.parts[0]
		first.Data = whole
		j.Messages, j.parts = append(j.Messages, first), nil
	}
	j.endParts()
}

// endParts gives up the message in parts: each is a message of its own.
func (j *partJoiner) endParts() {
	j.Messages = append(j.Messages, j.parts...)
	j.parts = nil
}
