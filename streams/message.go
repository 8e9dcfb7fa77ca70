package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// ErrNoMessage is returned when a stream holds no message at a sequence.
var ErrNoMessage = errors.New("no such message")

// StoredMessage is a message of a stream, for people to look at.
type StoredMessage struct {
	// Stream is the stream's name without the run: see [StreamInfo].
	Stream   string
	Sequence uint64
	Subject  string
	At       time.Time
	// Header are the headers that the message was published with.
	Header map[string][]string
	// Data is the message as it is stored: where it is a part of a message, that part.
	Data []byte
	// Whole is the message whose part Data is, nil where its parts are not all there. Of a message in a single part it is Data.
	Whole []byte
}

// fromBroker begins the headers that the broker adds to a message that it is asked for.
var fromBroker = []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}

// StoredMessage reads a message. stream is a name of [Run.StreamInfos]. It fails with [ErrNoMessage] where the stream holds no
// message at the sequence, and with [ErrDenied] where the role may not read the stream.
func (r *Run) StoredMessage(ctx context.Context, stream string, sequence uint64) (*StoredMessage, error) {
	name, err := r.names.streamNamed(stream)
	if err != nil {
		return nil, err
	}
	raw, err := r.messageAt(ctx, name, sequence)
	if err != nil {
		return nil, fmt.Errorf("read message %d of %s: %w", sequence, stream, err)
	}
	m := &StoredMessage{
		Stream: strings.ToUpper(stream), Sequence: sequence, Subject: raw.Header.Get("Nats-Subject"), At: raw.At,
		Header: make(map[string][]string), Data: raw.Data, Whole: raw.Data,
	}
	maps.Copy(m.Header, raw.Header)
	for _, key := range fromBroker {
		delete(m.Header, key)
	}
	if p, split, err := parsePart(raw.Header); split && err == nil {
		m.Whole = r.joinStored(ctx, name, p.firstSequence(sequence), p)
	}
	return m, nil
}

// joinStored is the whole of a message in parts, nil where the stream does not hold all of them.
func (r *Run) joinStored(ctx context.Context, stream string, first uint64, p part) []byte {
	if p.size > maxJoined {
		return nil
	}
	parts := make([][]byte, 0, p.count)
	for i := range p.count {
		m, err := r.messageAt(ctx, stream, first+uint64(i))
		if err != nil {
			return nil
		}
		parts = append(parts, m.Data)
	}
	whole, err := joinParts(p, parts)
	if err != nil {
		return nil
	}
	return whole
}

// messageAt reads the message at a sequence of a stream.
func (r *Run) messageAt(ctx context.Context, stream string, sequence uint64) (found seam.Message, err error) {
	_, _, err = r.readMessages(ctx, stream, ">", sequence, seam.Window{Messages: 1, Bytes: math.MaxInt32}, func(m seam.Message) error {
		found = m
		return nil
	})
	if err == nil && (found.Sequence != sequence || sequence == 0) {
		err = ErrNoMessage
	}
	return found, err
}

// Decode reads the message: a *schemas.Ticket, *schemas.Trajectory, *schemas.GroupClosed, *schemas.Manifest, *schemas.Control or
// *schemas.Event. It fails with [schemas.ErrMalformed], [schemas.ErrVersion] or [schemas.ErrKind].
func (m *StoredMessage) Decode() (any, error) {
	data := m.Whole
	if data == nil {
		return nil, fmt.Errorf("%w: it is part %s of a message whose other parts are not all there",
			schemas.ErrMalformed, nats.Header(m.Header).Get(headerPart))
	}
	kind, _, err := schemas.Peek(data)
	if err != nil {
		return nil, err
	}
	var into any
	switch kind {
	case schemas.KindTicket:
		into = new(schemas.Ticket)
	case schemas.KindTrajectory:
		into = new(schemas.Trajectory)
	case schemas.KindGroupClosed:
		into = new(schemas.GroupClosed)
	case schemas.KindManifest:
		into = new(schemas.Manifest)
	case schemas.KindControl:
		into = new(schemas.Control)
	case schemas.KindEvent:
		into = new(schemas.Event)
	default:
		return nil, fmt.Errorf("%w: a %s is no message of a stream", schemas.ErrKind, kind)
	}
	return into, schemas.Unmarshal(data, into)
}
