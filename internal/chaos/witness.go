package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/internal/audit"
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
	last  uint64
	seen  []audit.Seen
	// samples are copies of messages of the run, for those who play the stranger.
	samples []*nats.Msg
}

// samplesKept bounds the samples.
const samplesKept = 64

func newWitness(nc *nats.Conn, run string) (*witness, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &witness{js: js, stream: streamName(run), run: run}, nil
}

func streamName(run string) string { return "WEIR_" + run + "_TRAJECTORIES" }

// watch reads until ctx ends. It begins again after the last message that it saw whenever the broker was away.
func (w *witness) watch(ctx context.Context) {
	for ctx.Err() == nil {
		reading, again := context.WithCancel(ctx)
		w.mu.Lock()
		w.again = again
		w.mu.Unlock()
		_ = w.read(reading) // the broker is away: that is what this is about
		again()
		_ = pause(ctx, 10*time.Millisecond)
	}
}

// reconnected says that the broker is back: what was asked of it before is forgotten.
func (w *witness) reconnected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again != nil {
		w.again()
	}
}

func (w *witness) read(ctx context.Context) error {
	stream, err := w.find(ctx)
	if err != nil {
		return err
	}
	created := stream.CachedInfo().Created
	c, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.reached() + 1, MaxResetAttempts: 1,
	})
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
		w.note(meta.Sequence.Stream, created, msg)
	}
}

func (w *witness) find(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return w.js.Stream(ctx, w.stream)
}

// note writes one message down. A well-formed group-closed marker of this run is passed over: a record says of
// groups, not of markers, what became of them.
func (w *witness) note(sequence uint64, created time.Time, msg jetstream.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sequence <= w.last {
		return
	}
	w.last = sequence
	s := audit.Seen{Sequence: sequence, Created: created, Oldest: -1}
	if index, _, ok := strings.Cut(msg.Headers().Get("Weir-Part"), "/"); ok {
		if i, err := strconv.ParseUint(index, 10, 64); err == nil && i >= 1 && i <= sequence {
			s.First = sequence - (i - 1)
		}
		w.seen = append(w.seen, s)
		return
	}
	switch kind, _, err := schemas.Peek(msg.Data()); {
	case err != nil:
	case kind == schemas.KindGroupClosed:
		g := new(schemas.GroupClosed)
		if schemas.Unmarshal(msg.Data(), g) == nil && g.Validate() == nil && g.Run == w.run {
			return
		}
	case kind == schemas.KindTrajectory:
		t := new(schemas.Trajectory)
		if schemas.Unmarshal(msg.Data(), t) == nil {
			s.ID, s.Oldest = t.ID, t.OldestVersion()
			w.sample(msg)
		}
	}
	w.seen = append(w.seen, s)
}

// sample keeps a producer's message; strangers' have no id.
func (w *witness) sample(msg jetstream.Msg) {
	if msg.Headers().Get(jetstream.MsgIDHeader) == "" {
		return
	}
	m := &nats.Msg{Subject: msg.Subject(), Data: msg.Data(), Header: msg.Headers()}
	if len(w.samples) == samplesKept {
		w.samples = w.samples[1:]
	}
	w.samples = append(w.samples, m)
}

func (w *witness) reached() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// sampled returns the i-th newest sample, nil where there is none.
func (w *witness) sampled(i int) *nats.Msg {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.samples) == 0 {
		return nil
	}
	return w.samples[len(w.samples)-1-i%len(w.samples)]
}

func (w *witness) account() []audit.Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]audit.Seen(nil), w.seen...)
}

// catchUp waits until everything that the stream holds is written down, and returns how the stream is.
func (w *witness) catchUp(ctx context.Context) (*jetstream.StreamInfo, error) {
	for {
		stream, err := w.find(ctx)
		if err == nil && w.reached() >= stream.CachedInfo().State.LastSeq {
			return stream.CachedInfo(), nil
		}
		if wait := pause(ctx, 50*time.Millisecond); wait != nil {
			return nil, errors.Join(fmt.Errorf("the witness has come to sequence %d: %w", w.reached(), wait), err)
		}
	}
}

// pause waits, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
