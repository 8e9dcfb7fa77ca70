package chaos

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
)

// witness writes down every message of the trajectory stream, in order, whatever happens to the broker. It reads
// beside the trainer and shares nothing with it, not even the code that reads the stream.
type witness struct {
	js     jetstream.JetStream
	stream string
	run    string

	mu    sync.Mutex
	again context.CancelFunc // ends the read of now
	// created is when the stream that is being read was made, last the sequence that the witness has come to in it, and
	// life counts how often the stream was lost or cut short.
	created time.Time
	last    uint64
	life    int
	seen    []audit.Seen
	gone    []audit.Gone
	// honest are the trajectories that came with a message id, as producers send them, and exact copies that stand in for a
	// producer's message that has gone with a store. originals is where a producer's message stands, by the SHA-256 of its bytes.
	honest map[standing]bool
	// strange are the trajectories that came without, and stand in for none.
	strange   map[standing]bool
	originals map[[sha256.Size]byte]position
	// samples are copies of producers' messages, for the stranger to forge from.
	samples []sample
}

// position is where a message stands or stood.
type position struct {
	created  time.Time
	life     int
	sequence uint64
}

// sample is a copy of a producer's message.
type sample struct {
	msg *nats.Msg
	at  position
}

// standing is a message of a stream. A stream that was cut short can have two at a sequence.
type standing struct {
	created  int64
	sequence uint64
	id       string
}

// wasSent says whether a trajectory that a record names was a producer's.
func (w *witness) wasSent(created time.Time, sequence uint64, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.honest[standing{created.UnixNano(), sequence, id}]
}

// wasStranger says whether a trajectory that a record names was a stranger's, also where the stranger never had the broker's answer.
func (w *witness) wasStranger(created time.Time, sequence uint64, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := standing{created.UnixNano(), sequence, id}
	return w.strange[at] && !w.honest[at]
}

// samplesKept bounds the samples.
const samplesKept = 64

func newWitness(nc *nats.Conn, run string) (*witness, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &witness{
		js: js, stream: streamName(run), run: run, honest: map[standing]bool{}, strange: map[standing]bool{},
		originals: map[[sha256.Size]byte]position{},
	}, nil
}

func streamName(run string) string { return "WEIR_" + run + "_TRAJECTORIES" }

// watchStreams reads until ctx ends. It begins again after the last message that it saw whenever the broker was away.
func (w *witness) watchStreams(ctx context.Context) {
	for ctx.Err() == nil {
		reading, again := context.WithCancel(ctx)
		w.mu.Lock()
		w.again = again
		w.mu.Unlock()
		_ = w.readStream(reading) // the broker is away, as it may be
		again()
		_ = harness.Wait(ctx, 10*time.Millisecond)
	}
}

// forgetRequests is called when the broker is back: requests from before are forgotten.
func (w *witness) forgetRequests() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again != nil {
		w.again()
	}
}

func (w *witness) readStream(ctx context.Context) error {
	stream, err := w.findStream(ctx)
	if err != nil {
		return err
	}
	created := stream.CachedInfo().Created
	life := w.beginStream(created)
	c, err := w.openConsumer(ctx, stream)
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(256), jetstream.PullExpiry(2*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if !w.noteMessage(meta.Sequence.Stream, life, msg) {
			return nil // the stream was lost meanwhile
		}
	}
}

// openConsumer opens a reader of what the witness has not seen. The answer of a broker that has just come back may never come, and
// messages that the trainer removes meanwhile are not seen.
func (w *witness) openConsumer(ctx context.Context, stream jetstream.Stream) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.lastSequence() + 1, MaxResetAttempts: 1,
	})
}

// beginStream says that a stream is read. It is another stream than before where it was made at another time.
func (w *witness) beginStream(created time.Time) (life int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.created.Equal(created) {
		w.created, w.last = created, 0
		w.life++
	}
	return w.life
}

// markLost says that the stream is about to be lost, but for its messages up to keeps, when all that it held was written down.
func (w *witness) markLost(info *jetstream.StreamInfo, keeps uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = append(w.gone, audit.Gone{Created: w.created, Life: w.life, From: max(info.State.FirstSeq, keeps+1)})
	w.last = min(w.last, keeps)
	w.life++
	if keeps == 0 {
		w.created = time.Time{}
	}
	if w.again != nil {
		w.again()
	}
}

// readAll writes down the messages of a stopped broker's stream that the witness did not see.
func (w *witness) readAll(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamInfo, error) {
	stream, err := js.Stream(ctx, w.stream)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	life := w.beginStream(info.Created)
	for sequence := max(w.lastSequence()+1, info.State.FirstSeq); sequence <= info.State.LastSeq; sequence++ {
		m, err := stream.GetMsg(ctx, sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		w.noteMessage(sequence, life, &atRest{m})
	}
	return info, nil
}

// atRest is a message that was read from where it lies.
type atRest struct{ *jetstream.RawStreamMsg }

func (m *atRest) Data() []byte         { return m.RawStreamMsg.Data }
func (m *atRest) Subject() string      { return m.RawStreamMsg.Subject }
func (m *atRest) Headers() nats.Header { return m.Header }

// storedMessage is as much of a stream's message as the witness looks at.
type storedMessage interface {
	Data() []byte
	Subject() string
	Headers() nats.Header
}

func (w *witness) findStream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return w.js.Stream(ctx, w.stream)
}

// noteMessage writes a message down. A well-formed group-closed marker of this run is passed over: a record says of
// groups, not of markers, how they ended. It is false where the stream was lost since its reading began.
func (w *witness) noteMessage(sequence uint64, life int, msg storedMessage) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if life != w.life {
		return false
	}
	if sequence <= w.last {
		return true
	}
	w.last = sequence
	s := audit.Seen{Sequence: sequence, Created: w.created, Life: life, Oldest: -1}
	if index, _, ok := strings.Cut(msg.Headers().Get("Weir-Part"), "/"); ok {
		if i, err := strconv.ParseUint(index, 10, 64); err == nil && i >= 1 && i <= sequence {
			s.First = sequence - (i - 1)
		}
		w.seen = append(w.seen, s)
		return true
	}
	switch kind, _, err := schemas.Peek(msg.Data()); {
	case err != nil:
	case kind == schemas.KindGroupClosed:
		g := new(schemas.GroupClosed)
		if schemas.Unmarshal(msg.Data(), g) == nil && g.Validate() == nil && g.Run == w.run {
			return true
		}
	case kind == schemas.KindTrajectory:
		t := new(schemas.Trajectory)
		if schemas.Unmarshal(msg.Data(), t) == nil {
			s.ID, s.Oldest = t.ID, t.OldestVersion()
			at := standing{w.created.UnixNano(), sequence, t.ID}
			if w.noteOriginal(msg, position{w.created, life, sequence}) {
				w.honest[at] = true
			} else {
				w.strange[at] = true
			}
		}
	}
	w.seen = append(w.seen, s)
	return true
}

// noteOriginal says whether a trajectory counts as a producer's: producers' messages have an id, and strangers' have none. Where the
// producer's message has gone with a store, an exact copy of it is the trajectory itself: the audit says that it counted once.
func (w *witness) noteOriginal(msg storedMessage, at position) bool {
	sum := sha256.Sum256(msg.Data())
	if msg.Headers().Get(jetstream.MsgIDHeader) == "" {
		original, known := w.originals[sum]
		if !known || !w.hasGone(original) {
			return false
		}
		w.originals[sum] = at
		return true
	}
	w.originals[sum] = at
	if len(w.samples) == samplesKept {
		w.samples = w.samples[1:]
	}
	w.samples = append(w.samples, sample{&nats.Msg{Subject: msg.Subject(), Data: msg.Data(), Header: msg.Headers()}, at})
	return true
}

// hasGone says whether a message has gone with a store.
func (w *witness) hasGone(at position) bool {
	return slices.ContainsFunc(w.gone, func(g audit.Gone) bool { return g.Took(at.created, at.life, at.sequence) })
}

func (w *witness) lastSequence() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// newestSample returns the i-th newest sample, nil where there is none, and whether the message has gone with a store.
func (w *witness) newestSample(i int) (msg *nats.Msg, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.samples) == 0 {
		return nil, false
	}
	s := w.samples[len(w.samples)-1-i%len(w.samples)]
	return s.msg, w.hasGone(s.at)
}

func (w *witness) copyRecords() ([]audit.Seen, []audit.Gone) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen), slices.Clone(w.gone)
}

func (w *witness) wasCreatedAt(created time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.created.Equal(created)
}

// catchUp waits until everything that the stream holds is written down, and returns how the stream is.
func (w *witness) catchUp(ctx context.Context) (*jetstream.StreamInfo, error) {
	for {
		stream, err := w.findStream(ctx)
		if err == nil && w.wasCreatedAt(stream.CachedInfo().Created) && w.lastSequence() >= stream.CachedInfo().State.LastSeq {
			return stream.CachedInfo(), nil
		}
		if wait := harness.Wait(ctx, 50*time.Millisecond); wait != nil {
			return nil, errors.Join(fmt.Errorf("the witness has come to sequence %d: %w", w.lastSequence(), wait), err)
		}
	}
}
