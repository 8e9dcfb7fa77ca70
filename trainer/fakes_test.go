package trainer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/batch"
)

// prompts ask to continue a token; the answer is the token after it.
type prompts struct{ vocab int }

func (p prompts) Tasks() []string { return []string{"count"} }

func (p prompts) Prompt(cursor uint64) Prompt {
	return Prompt{Task: "count", Prompt: schemas.Prompt{ID: fmt.Sprintf("q%d", cursor), Source: "count", Text: fmt.Sprint(cursor % uint64(p.vocab))}}
}

// world is the rest of a run, in memory: a broker that keeps what it is told over the trainer's crashes, and
// producers that roll out when the trainer waits.
type world struct {
	mu       sync.Mutex
	run      string
	vocab    int
	created  time.Time
	messages []schemas.Delivery // by sequence - 1
	acked    map[uint64]bool
	purged   uint64
	tickets  []*schemas.Ticket // outstanding
	issued   map[string]int
	weights  map[int64][]float32
	names    map[int64]string
	latest   int64
	newest   []byte // the file of the newest version
	control  *schemas.Control
	watchers map[chan *schemas.Control]bool
	rejected map[uint64]schemas.Reason
	// noise spoils some deliveries, by the ticket's seed: cancelled, duplicated, foreign, poisoned.
	noise bool
	// shuffle delivers outstanding tickets in an order of its own.
	shuffle *rand.Rand
	// crash is asked before and after every call: an error stops the trainer there.
	crash func(point string) error
	// lag makes rollouts use older versions, by the ticket's seed.
	lag int64
	// room bounds the messages stored, as a stream does; 0 is no bound. flat makes rewards equal but of every so
	// many prompts.
	room int
	flat uint64
	// hoard leases a ticket for ever, as a producer does that keeps the lease alive and nothing else.
	hoard   func(*schemas.Ticket) bool
	hoarded int
	// taken counts how often a trainer took the run.
	taken int
	// steal ends a ticket and nothing comes of it.
	steal func(*schemas.Ticket) bool
	// idle says so when nobody has work, as a broker does, where else that is an error.
	idle bool
	// change spoils a trajectory on its way, by its sequence; nil leaves all as they are.
	change func(sequence uint64, t *schemas.Trajectory)
	// turns makes rollouts of several turns, which go on from where a ticket's fork ends.
	turns bool
	// values has rollouts bring a turn and the value of its state.
	values bool
	// backwards rolls the newest ticket out first.
	backwards bool
	// archive is the role that keeps messages; full is how full the stream is.
	archive *archiveRole
	full    float64
}

var errCrash = errors.New("killed")

// newValuedWorld is newWorld with values of states where the estimator reads them.
func newValuedWorld(vocab int, cfg Config) *world {
	w := newWorld(vocab)
	w.values = cfg.StateValues()
	return w
}

func newWorld(vocab int) *world {
	return &world{
		run: "test", vocab: vocab, created: time.Unix(1000, 0).UTC(), acked: map[uint64]bool{}, issued: map[string]int{},
		weights: map[int64][]float32{}, names: map[int64]string{}, rejected: map[uint64]schemas.Reason{},
		watchers: map[chan *schemas.Control]bool{}, crash: func(string) error { return nil }, latest: -1,
	}
}

func (w *world) Name() string { return w.run }

func (w *world) Take(context.Context, *streams.Position) error {
	w.taken++
	return nil
}

func (w *world) Check(context.Context) error { return nil }
func (w *world) Watch(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// around runs an effect between two points at which the trainer may die.
func (w *world) around(call string, effect func() error) error {
	if err := w.crash("before " + call); err != nil {
		return err
	}
	w.mu.Lock()
	err := effect()
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.crash("after " + call)
}

func (w *world) Issue(_ context.Context, tickets ...*schemas.Ticket) error {
	for _, t := range tickets {
		err := w.around("issue", func() error {
			if w.issued[t.ID]++; w.issued[t.ID] == 1 {
				w.tickets = append(w.tickets, t)
			}
			return t.Validate()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) OutstandingTickets(context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tickets) + w.hoarded, nil
}

func (w *world) TicketCounts(context.Context) (streams.TicketCounts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return streams.TicketCounts{Waiting: len(w.tickets), Leased: w.hoarded}, nil
}

func (w *world) SpoolIn(string) {}

func (w *world) Deltas() bool { return false }

func (w *world) ManifestFits(*schemas.Manifest) error { return nil }

func (w *world) PublishWeights(_ context.Context, m *schemas.Manifest, shards weights.ShardSource) (*schemas.Manifest, error) {
	return m, w.around("publish", func() error {
		blob, err := shards(0)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
		if err = errors.Join(err, blob.Close()); err != nil {
			return err
		}
		m.Shards[0].Hash, m.Shards[0].FullHash, m.Shards[0].Size = schemas.ContentHash(data), schemas.ContentHash(data), int64(len(data))
		if err := m.Validate(); err != nil {
			return err
		}
		if name, ok := w.names[m.Version]; ok && name != m.Shards[0].Hash {
			return fmt.Errorf("version %d was published with other weights: %w", m.Version, streams.ErrFenced)
		}
		decoded, err := safetensors.Decode(data)
		if err != nil {
			return err
		}
		w.names[m.Version], w.weights[m.Version] = m.Shards[0].Hash, decoded.Tensors[0].Data
		w.latest, w.newest = max(w.latest, m.Version), data
		return nil
	})
}

func (w *world) UpdateControl(_ context.Context, change func(*schemas.Control) *schemas.Control) error {
	return w.around("control", func() error {
		var now *schemas.Control
		if w.control != nil {
			copied := *w.control
			now = &copied
		}
		next := change(now)
		if next == nil {
			return nil
		}
		w.control = next
		for ch := range w.watchers {
			ch <- next
		}
		return next.Validate()
	})
}

func (w *world) Control(context.Context) (*schemas.Control, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.control == nil {
		return nil, streams.ErrNoControl
	}
	c := *w.control
	return &c, nil
}

func (w *world) Published(context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.latest), nil
}

// BringNewest writes the newest version into a folder.
func (w *world) BringNewest(_ context.Context, dir string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := filepath.Join(dir, "version")
	return []string{path}, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, w.newest, 0o644))
}

func (w *world) FollowControl(ctx context.Context, changed func(*schemas.Control)) error {
	ch := make(chan *schemas.Control, 1024)
	w.mu.Lock()
	w.watchers[ch] = true
	now := w.control
	w.mu.Unlock()
	if now != nil {
		changed(now)
	}
	for {
		select {
		case <-ctx.Done():
			w.mu.Lock()
			delete(w.watchers, ch)
			w.mu.Unlock()
			return nil
		case c := <-ch:
			changed(c)
		}
	}
}

func (w *world) Feed(_ context.Context, from *streams.Position, known streams.Mark, maxPending int) (Feed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &worldFeed{w: w, created: w.created, inFlight: map[uint64]bool{}, maxPending: maxPending}
	if from != nil {
		if !from.Created.Equal(w.created) {
			return nil, streams.ErrStreamRecreated
		}
		if known.Sequence > uint64(len(w.messages)) {
			return nil, streams.ErrStreamTruncated
		}
		f.next = from.Sequence
	}
	return f, nil
}

type worldFeed struct {
	w        *world
	created  time.Time // of the stream that it was opened for
	next     uint64
	inFlight map[uint64]bool
	// pending counts what is in flight and not acked.
	pending, maxPending int
}

func (f *worldFeed) Known() streams.Mark { return streams.Mark{} }
func (f *worldFeed) Identity() streams.Position {
	return streams.Position{Stream: "TRAJECTORIES", Created: f.created}
}
func (f *worldFeed) Close() {}

func (f *worldFeed) Passed() uint64 { return f.next }

func (f *worldFeed) Refused() map[schemas.Reason]int { return nil }

func (f *worldFeed) RefusedBy() map[string]int { return nil }

func (f *worldFeed) Fullness(context.Context) (float64, error) { return 0, nil }

func (f *worldFeed) StreamFullness(context.Context) (float64, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.full, nil
}

func (f *worldFeed) Behind(context.Context) (bool, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return int(f.next) < len(f.w.messages), nil
}

func (f *worldFeed) SetMaxPending(_ context.Context, n int) error {
	f.maxPending = n
	return nil
}

func (f *worldFeed) Next(ctx context.Context) (*streams.Delivery, error) {
	var out *streams.Delivery
	err := f.w.around("next", func() error {
		f.next = max(f.next, f.w.purged)
		if f.pending >= f.maxPending {
			return fmt.Errorf("the feed gives no more than %d messages that are not acked", f.maxPending)
		}
		for int(f.next) >= len(f.w.messages) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if f.w.idle && len(f.w.tickets) == 0 {
				return streams.ErrIdle
			}
			if !f.w.rollOut() {
				return errors.New("the trainer waits, but nobody has work")
			}
		}
		f.next++
		f.inFlight[f.next] = true
		f.pending++
		out = &streams.Delivery{Delivery: f.w.messages[f.next-1]}
		return nil
	})
	return out, err
}

func (f *worldFeed) Ack(_ context.Context, sequences ...uint64) error {
	return f.w.around("ack", func() error {
		for _, s := range sequences {
			if _, delivered := f.inFlight[s]; !delivered {
				return fmt.Errorf("sequence %d is not in flight", s)
			}
			f.ack(s)
		}
		return nil
	})
}

func (f *worldFeed) File(context.Context) error { return nil }

func (f *worldFeed) RejectSoon(_ context.Context, d *streams.Delivery, reason schemas.Reason, _ string) error {
	return f.w.around("reject", func() error {
		f.w.rejected[d.Sequence] = reason
		f.ack(d.Sequence)
		return nil
	})
}

func (f *worldFeed) RejectCarried(_ context.Context, sequence uint64, _ *schemas.Trajectory, reason schemas.Reason, _ string) error {
	return f.w.around("reject", func() error {
		f.w.rejected[sequence] = reason
		f.ack(sequence)
		return nil
	})
}

func (f *worldFeed) ack(s uint64) {
	f.w.acked[s] = true
	if f.inFlight[s] {
		f.inFlight[s] = false
		f.pending--
	}
}

func (f *worldFeed) ReadStored(_ context.Context, after, upTo uint64, bytes int) (*streams.StoredSpan, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !f.created.IsZero() && !f.created.Equal(f.w.created) {
		return nil, streams.ErrStreamRecreated
	}
	out := &streams.StoredSpan{After: max(after, f.w.purged), Last: max(after, f.w.purged)}
	for n := 0; out.Last < min(upTo, uint64(len(f.w.messages))) && n < bytes; {
		m := f.w.messages[out.Last]
		out.Last++
		var data []byte
		var err error
		if m.Trajectory != nil {
			data, err = schemas.Marshal(m.Trajectory)
		} else {
			data, err = schemas.Marshal(m.Closed)
		}
		if err != nil {
			return nil, err
		}
		n += len(data)
		out.Messages = append(out.Messages, streams.RawMessage{Sequence: m.Sequence, Subject: "trajectories", At: f.w.created, Data: data})
	}
	return out, nil
}

func (f *worldFeed) Purge(_ context.Context, upTo uint64) error {
	return f.w.around("purge", func() error {
		for s := f.w.purged + 1; s <= upTo; s++ {
			if f.inFlight[s] && !f.w.acked[s] {
				return fmt.Errorf("purge up to %d: %d is not acked", upTo, s)
			}
		}
		f.w.purged = max(f.w.purged, upTo)
		return nil
	})
}

// rollOut does one outstanding ticket.
func (w *world) rollOut() bool {
	if len(w.tickets) == 0 || w.room > 0 && len(w.messages)-int(w.purged) >= w.room {
		return false
	}
	at := 0
	if w.backwards {
		at = len(w.tickets) - 1
	}
	if w.shuffle != nil {
		at = w.shuffle.IntN(len(w.tickets))
	}
	t := w.tickets[at]
	w.tickets = slices.Delete(w.tickets, at, at+1)
	if w.hoard != nil && w.hoard(t) {
		w.hoarded++
		return true
	}
	if w.steal != nil && w.steal(t) {
		return true
	}
	noise := fnv.New64a()
	_, _ = noise.Write([]byte(t.ID))
	n := noise.Sum64() % 32
	if w.noise && n == 0 {
		w.send(schemas.Delivery{Closed: &schemas.GroupClosed{Run: w.run, Group: t.Group, Cancelled: []int{t.Sample}}})
		return true
	}
	version := max(0, w.latest-int64(t.Seed%uint64(w.lag+1)))
	tr := w.sample(t, version)
	if w.noise {
		switch n {
		case 1:
			defer w.send(schemas.Delivery{Trajectory: tr})
		case 2:
			foreign := *tr
			foreign.Run = "another"
			w.send(schemas.Delivery{Trajectory: &foreign})
		case 3:
			tr.Segments[0].Tokens[2] = int32(w.vocab)
		case 4:
			stranger := *tr
			stranger.Cursor += 1 << 40
			stranger.Group = batch.GroupID(stranger.Cursor, 0)
			stranger.ID = batch.TicketID(stranger.Cursor, 0, stranger.Sample)
			stranger.Attempt = 0
			w.send(schemas.Delivery{Trajectory: &stranger})
		}
	}
	w.send(schemas.Delivery{Trajectory: tr})
	return true
}

func (w *world) send(d schemas.Delivery) {
	d.Sequence = uint64(len(w.messages) + 1)
	if w.change != nil && d.Trajectory != nil {
		w.change(d.Sequence, d.Trajectory)
	}
	w.messages = append(w.messages, d)
}

// sample is a rollout that depends on the ticket and the weights alone.
func (w *world) sample(t *schemas.Ticket, version int64) *schemas.Trajectory {
	roll := enginetest.BigramRollout
	if w.turns {
		roll = turnsRollout
	}
	tr := roll(w.weights[version], w.vocab, t, version)
	tr.Run = w.run
	if w.values {
		acts := slices.Index(tr.Segments[0].ActionMask, 1)
		tr.Turns = []schemas.Turn{{Start: acts, End: acts + 1}}
		tr.Values = []schemas.StateValue{{Mean: float64(t.Seed%8) / 8, Samples: 2}}
	}
	if w.flat > 0 && t.Cursor%w.flat != 0 {
		tr.Reward = 0
		tr.Rewards["next"] = 0
	}
	return tr
}
