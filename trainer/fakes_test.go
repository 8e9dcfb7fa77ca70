package trainer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/batch"
)

// bigram is the smallest policy: logits of the next token are a row of a table, and the value an entry of another. SGD
// with momentum stands in for AdamW, so that there is optimizer state to lose.
type bigram struct {
	vocab int
	table []float32
	// values are nil without a value head.
	values         []float32
	grad, momentum []float32 // of the table, then of the values
	steps          int64
	kept           *gpu.Batch
}

func newBigram(vocab int) *bigram { return bigramOf(gpu.Config{VocabSize: vocab}) }

func bigramOf(c gpu.Config) *bigram {
	e := &bigram{vocab: c.VocabSize, table: make([]float32, c.VocabSize*c.VocabSize)}
	if c.ValueHead {
		e.values = make([]float32, c.VocabSize)
	}
	size := len(e.table) + len(e.values)
	e.grad, e.momentum = make([]float32, size), make([]float32, size)
	return e
}

func (e *bigram) Config() gpu.Config {
	return gpu.Config{VocabSize: e.vocab, HiddenSize: e.vocab, MaxPositions: 64, ValueHead: e.values != nil}
}

// logprobs are those of the token after prev.
func logprobs(table []float32, vocab int, prev int32) []float64 {
	row := table[int(prev)*vocab : (int(prev)+1)*vocab]
	out := make([]float64, vocab)
	top := math.Inf(-1)
	for _, v := range row {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range row {
		out[i] = float64(v) - top - math.Log(sum)
	}
	return out
}

func (e *bigram) Forward(_ context.Context, b *gpu.Batch, keep bool) (*gpu.Outputs, error) {
	out := &gpu.Outputs{Logprobs: make([]float32, len(b.Tokens)), Entropies: make([]float32, len(b.Tokens))}
	if e.values != nil {
		out.Values = make([]float32, len(b.Tokens))
	}
	for i, m := range b.Mask {
		if m == 0 {
			continue
		}
		if e.values != nil {
			out.Values[i] = e.values[b.Tokens[i-1]]
		}
		lp := logprobs(e.table, e.vocab, b.Tokens[i-1])
		out.Logprobs[i] = float32(lp[b.Tokens[i]])
		for _, v := range lp {
			out.Entropies[i] -= float32(v * math.Exp(v))
		}
	}
	e.kept = nil
	if keep {
		e.kept = b
	}
	if b.ValuesOnly {
		out.Logprobs, out.Entropies = nil, nil
	}
	return out, nil
}

func (e *bigram) Backward(_ context.Context, g *gpu.Gradients) error {
	for i, m := range e.kept.Mask {
		if m == 0 {
			continue
		}
		prev := e.kept.Tokens[i-1]
		if g.Values != nil {
			e.grad[len(e.table)+int(prev)] += g.Values[i]
		}
		if g.Logprobs == nil {
			continue
		}
		for v, lp := range logprobs(e.table, e.vocab, prev) {
			d := -math.Exp(lp)
			if int32(v) == e.kept.Tokens[i] {
				d++
			}
			e.grad[int(prev)*e.vocab+v] += float32(float64(g.Logprobs[i]) * d)
		}
	}
	return nil
}

func (e *bigram) Step(_ context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	norm := 0.0
	for _, g := range e.grad {
		norm += float64(g) * float64(g)
	}
	for i, g := range e.grad {
		e.momentum[i] = float32(o.Beta1)*e.momentum[i] + g
		switch at := i - len(e.table); {
		case at < 0:
			e.table[i] -= float32(o.LearningRate) * e.momentum[i]
		case o.ValueLearningRate > 0:
			e.values[at] -= float32(o.ValueLearningRate) * e.momentum[i]
		default:
			e.values[at] -= float32(o.LearningRate) * e.momentum[i]
		}
	}
	clear(e.grad)
	e.steps++
	return gpu.StepStats{GradNorm: math.Sqrt(norm)}, nil
}

func (e *bigram) Weights(context.Context) (*gpu.Weights, error) {
	w := &gpu.Weights{Tensors: []gpu.Tensor{{Name: "table", Shape: []int{e.vocab, e.vocab}, Data: slices.Clone(e.table)}}}
	if e.values != nil {
		w.Tensors = append(w.Tensors, gpu.Tensor{Name: gpu.ValueHeadTensor, Shape: []int{1, e.vocab}, Data: slices.Clone(e.values)})
	}
	return w, nil
}

func (e *bigram) SetWeights(_ context.Context, w *gpu.Weights) error {
	if (len(w.Tensors) == 2) != (e.values != nil) {
		return gpu.ErrMismatch
	}
	copy(e.table, w.Tensors[0].Data)
	if e.values != nil {
		copy(e.values, w.Tensors[1].Data)
	}
	return nil
}

func (e *bigram) Optimizer(context.Context) (*gpu.OptimizerState, error) {
	return &gpu.OptimizerState{Steps: e.steps, Moments: []gpu.Tensor{{Name: "m", Shape: []int{len(e.momentum)}, Data: slices.Clone(e.momentum)}}}, nil
}

func (e *bigram) SetOptimizer(_ context.Context, s *gpu.OptimizerState) error {
	e.steps = s.Steps
	clear(e.momentum)
	for _, m := range s.Moments {
		copy(e.momentum, m.Data)
	}
	return nil
}

func (e *bigram) Close() error { return nil }

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
	messages []batch.Delivery // by sequence - 1
	acked    map[uint64]bool
	purged   uint64
	tickets  []*schemas.Ticket // outstanding
	issued   map[string]int
	weights  map[int64][]float32
	names    map[int64]string
	latest   int64
	control  *schemas.Control
	watchers map[chan *schemas.Control]bool
	rejected map[uint64]batch.Reason
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
	// backwards rolls the newest ticket out first.
	backwards bool
}

var errCrash = errors.New("killed")

func newWorld(vocab int) *world {
	return &world{
		run: "test", vocab: vocab, created: time.Unix(1000, 0).UTC(), acked: map[uint64]bool{}, issued: map[string]int{},
		weights: map[int64][]float32{}, names: map[int64]string{}, rejected: map[uint64]batch.Reason{},
		watchers: map[chan *schemas.Control]bool{}, crash: func(string) error { return nil }, latest: -1,
	}
}

func (w *world) Run() string { return w.run }

func (w *world) Take(context.Context, *Position) error {
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

func (w *world) WaitingTickets(context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tickets), nil
}

func (w *world) PublishWeights(_ context.Context, m *schemas.Manifest, shards streams.ShardSource) error {
	return w.around("publish", func() error {
		data, err := shards(0)
		if err != nil {
			return err
		}
		m.Shards[0].Hash, m.Shards[0].FullHash, m.Shards[0].Size = hash(data), hash(data), int64(len(data))
		if err := m.Validate(); err != nil {
			return err
		}
		if name, ok := w.names[m.Version]; ok && name != m.Shards[0].Hash {
			return fmt.Errorf("version %d was published with other weights", m.Version)
		}
		decoded, err := safetensors.Decode(data)
		if err != nil {
			return err
		}
		w.names[m.Version], w.weights[m.Version] = m.Shards[0].Hash, decoded.Tensors[0].Data
		w.latest = max(w.latest, m.Version)
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
		return nil, nil
	}
	c := *w.control
	return &c, nil
}

func (w *world) Published(context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.latest), nil
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

func (w *world) Feed(_ context.Context, from *Position, maxPending int) (Feed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &worldFeed{w: w, inFlight: map[uint64]bool{}, maxPending: maxPending}
	if from != nil {
		if !from.Created.Equal(w.created) {
			return nil, ErrRecreated
		}
		f.next = from.Sequence
	}
	return f, nil
}

type worldFeed struct {
	w        *world
	next     uint64
	inFlight map[uint64]bool
	// pending counts what is in flight and not acked.
	pending, maxPending int
}

func (f *worldFeed) Identity() Position {
	return Position{Stream: "TRAJECTORIES", Created: f.w.created}
}
func (f *worldFeed) Close() error { return nil }

func (f *worldFeed) Passed() uint64 { return f.next }

func (f *worldFeed) Refused() map[batch.Reason]int { return nil }

func (f *worldFeed) Fullness(context.Context) (float64, error) { return 0, nil }

func (f *worldFeed) Behind(context.Context) (bool, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return int(f.next) < len(f.w.messages), nil
}

func (f *worldFeed) SetMaxPending(_ context.Context, n int) error {
	f.maxPending = n
	return nil
}

func (f *worldFeed) Next(ctx context.Context) (*Delivery, error) {
	var out *Delivery
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
				return ErrIdle
			}
			if !f.w.rollOut() {
				return errors.New("the trainer waits, but nobody has work")
			}
		}
		f.next++
		f.inFlight[f.next] = true
		f.pending++
		out = &Delivery{Delivery: f.w.messages[f.next-1]}
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

func (f *worldFeed) Reject(_ context.Context, d *Delivery, reason batch.Reason, _ string) error {
	return f.w.around("reject", func() error {
		f.w.rejected[d.Sequence] = reason
		f.ack(d.Sequence)
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
		w.send(batch.Delivery{Closed: &schemas.GroupClosed{Run: w.run, Group: t.Group, Cancelled: []int{t.Sample}}})
		return true
	}
	version := max(0, w.latest-int64(t.Seed%uint64(w.lag+1)))
	tr := w.sample(t, version)
	if w.noise {
		switch n {
		case 1:
			defer w.send(batch.Delivery{Trajectory: tr})
		case 2:
			foreign := *tr
			foreign.Run = "another"
			w.send(batch.Delivery{Trajectory: &foreign})
		case 3:
			tr.Segments[0].Tokens[2] = int32(w.vocab)
		case 4:
			stranger := *tr
			stranger.Cursor += 1 << 40
			stranger.Group = batch.GroupID(stranger.Cursor, 0)
			stranger.ID = batch.TicketID(stranger.Cursor, 0, stranger.Sample)
			stranger.Attempt = 0
			w.send(batch.Delivery{Trajectory: &stranger})
		}
	}
	w.send(batch.Delivery{Trajectory: tr})
	return true
}

func (w *world) send(d batch.Delivery) {
	d.Sequence = uint64(len(w.messages) + 1)
	if w.change != nil && d.Trajectory != nil {
		w.change(d.Sequence, d.Trajectory)
	}
	w.messages = append(w.messages, d)
}

// sample is a rollout that depends on the ticket and the weights alone.
func (w *world) sample(t *schemas.Ticket, version int64) *schemas.Trajectory {
	rng := rand.New(rand.NewPCG(t.Seed, 7))
	prompt := int32(t.Cursor % uint64(w.vocab))
	s := schemas.Segment{
		Tokens: schemas.Int32s{0, prompt}, ActionMask: schemas.Bytes{0, 0}, Logprobs: schemas.Float32s{0, 0},
		Versions: schemas.Runs{schemas.NoVersion, schemas.NoVersion}, Temperature: t.Sampling.Temperature,
	}
	reward := 0.0
	for range 2 + rng.IntN(3) {
		prev := s.Tokens[len(s.Tokens)-1]
		u, next := rng.Float64(), int32(w.vocab-1)
		lp := logprobs(w.weights[version], w.vocab, prev)
		for v, l := range lp {
			if t.Sampling.Temperature == 0 {
				next = int32(slices.Index(lp, slices.Max(lp)))
				break
			}
			if u -= math.Exp(l); u < 0 {
				next = int32(v)
				break
			}
		}
		if next == (prev+1)%int32(w.vocab) {
			reward++
		}
		s.Tokens, s.ActionMask = append(s.Tokens, next), append(s.ActionMask, 1)
		s.Logprobs, s.Versions = append(s.Logprobs, float32(lp[next])), append(s.Versions, int32(version))
	}
	if w.flat > 0 && t.Cursor%w.flat != 0 {
		reward = 0
	}
	return &schemas.Trajectory{
		Run: w.run, ID: t.ID, Group: t.Group, Cursor: t.Cursor, Attempt: t.Attempt, Sample: t.Sample, GroupSize: t.GroupSize,
		Task: t.Task, PromptID: t.Prompt.ID, Source: "count", Producer: "p", Segments: []schemas.Segment{s},
		Reward: reward, Rewards: map[string]float64{"next": reward}, Stop: schemas.StopAnswer,
	}
}
