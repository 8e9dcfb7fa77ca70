package fakeserver

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// NewDecoder makes the decoder of a model over its first weights.
type NewDecoder func(gpu.Config, *gpu.Weights, gpu.DecoderOptions) (gpu.Decoder, error)

// engine samples for all calls of a server, a token a step for each.
type engine struct {
	newDecoder NewDecoder
	slots      int
	pace       time.Duration
	shy        bool // half of the sampled stop tokens are drawn again
	packed     bool // loads do not reach a head that is the embedding

	// stepping is held while a step runs, and while the weights change.
	stepping sync.Mutex
	work     chan struct{} // of capacity 1: there may be something to do

	mu      sync.Mutex
	dec     gpu.Decoder
	weights *gpu.Weights
	head    *gpu.Tensor // the first, where packed keeps it
	config  gpu.Config
	label   string
	paused  bool
	running []*sequence
	queue   []*sequence
	serial  int
	drawn   int // tokens so far
	// cached are the contexts of calls that have ended, the oldest first.
	cached []*prefix
}

// params are the settings of a call.
type params struct {
	maxTokens                    int
	temperature, topP, minP, rep float64
	topK                         int
	seed                         uint64
	stop                         []int32
	raw                          bool // log-probabilities are from before the temperature
	top                          int  // how many of the most likely tokens are sent
	salt                         string
}

// isNeutral reports whether the whole softmax is sampled from, so that the decoder can do it.
func (p params) isNeutral() bool {
	return p.topP >= 1 && p.topK <= 0 && p.minP == 0 && p.rep == 1 && !p.raw
}

// sampled is a token as the servers send it.
type sampled struct {
	token   int32
	logprob float64
	// tops are the most likely tokens, the likeliest first.
	tops  []likely
	label string
}

// likely is a token that might have been drawn.
type likely struct {
	token   int32
	logprob float64
}

// sequence is a call.
type sequence struct {
	id      string
	tokens  []int32 // context and sampled tokens
	context int
	p       params
	random  *rand.Rand
	slot    gpu.Slot
	open    bool
	filled  int  // tokens in the slot's cache
	hit     int  // tokens of the context that were in the cache
	late    bool // it came during a pause
	shy     bool // all log-probabilities are needed
	out     []sampled
	finish  string // "" while it runs
	matched int32
	changed chan struct{} // of capacity 1: out or finish has changed
}

func newEngine(newDecoder NewDecoder, slots int, pace time.Duration, shy bool) *engine {
	return &engine{newDecoder: newDecoder, slots: slots, pace: pace, shy: shy, work: make(chan struct{}, 1), label: "default"}
}

// loadFolder reads a folder and puts its weights to use between two steps. A label of "" leaves the label. only selects the tensors that
// are taken; nil takes all.
func (e *engine) loadFolder(dir, label string, keepCache bool, only func(name string) bool) error {
	m, err := hf.Load(dir)
	if err != nil {
		return err
	}
	e.stepping.Lock()
	defer e.stepping.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.packed {
		e.keepHead(m)
	}
	if e.dec == nil {
		e.dec, err = e.newDecoder(m.Config, m.Weights, gpu.DecoderOptions{Slots: e.slots, MaxTokens: m.Config.MaxPositions})
		if err != nil {
			return err
		}
		e.config = m.Config
	} else {
		for i, t := range e.weights.Tensors {
			if only != nil && !only(t.Name) {
				m.Weights.Tensors[i] = t
			}
		}
		commit, err := e.dec.Prepare(m.Weights)
		if err != nil {
			return err
		}
		commit()
	}
	e.weights = m.Weights
	if label != "" {
		e.label = label
	}
	if !keepCache {
		e.flushCache()
		for _, s := range e.running {
			e.dec.Truncate(s.slot, 0)
			s.filled = 0
		}
	}
	return nil
}

// keepHead gives a model whose head is its embedding the first model's embedding for its head, as vLLM for processors does.
func (e *engine) keepHead(m *hf.Model) {
	if !m.Config.TieEmbeddings {
		return
	}
	if e.head == nil {
		for _, t := range m.Weights.Tensors {
			if t.Name == "model.embed_tokens.weight" {
				e.head = &gpu.Tensor{Name: "lm_head.weight", Shape: t.Shape, Data: t.Data}
			}
		}
	}
	m.Config.TieEmbeddings = false
	m.Weights.Tensors = append(m.Weights.Tensors, *e.head)
}

// addCall queues a call.
func (e *engine) addCall(id string, tokens []int32, p params) (*sequence, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, token := range tokens {
		if token < 0 || int(token) >= e.config.VocabSize {
			return nil, fmt.Errorf("Token id %d is out of vocabulary", token) //nolint:staticcheck // as the server says it
		}
	}
	if len(tokens) == 0 || len(tokens)+1 > e.config.MaxPositions || p.maxTokens <= 0 {
		return nil, errors.New("the prompt is empty or too long")
	}
	e.serial++
	if p.seed == 0 {
		p.seed = uint64(e.serial) //nolint:gosec // it counts up
	}
	s := &sequence{
		id: id, tokens: slices.Clone(tokens), context: len(tokens), p: p, changed: make(chan struct{}, 1), late: e.paused,
		random: rand.New(rand.NewPCG(p.seed, 0x5eed)),
	}
	e.queue = append(e.queue, s)
	e.wakeLoop()
	return s, nil
}

func (e *engine) wakeLoop() {
	select {
	case e.work <- struct{}{}:
	default:
	}
}

// runSteps steps until ctx ends.
func (e *engine) runSteps(ctx context.Context) {
	for ctx.Err() == nil {
		if !e.runStep(ctx) {
			select {
			case <-ctx.Done():
			case <-e.work:
			}
		} else if e.pace > 0 {
			timer := time.NewTimer(e.pace)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// runStep samples a token for each call that runs; false where nothing can.
func (e *engine) runStep(ctx context.Context) bool {
	e.stepping.Lock()
	defer e.stepping.Unlock()
	e.mu.Lock()
	if e.paused || e.dec == nil {
		e.mu.Unlock()
		return false
	}
	for len(e.queue) > 0 && e.openSlot(e.queue[0]) {
		e.running = append(e.running, e.queue[0])
		e.queue = e.queue[1:]
	}
	batch := slices.Clone(e.running)
	in := make([]gpu.Extension, len(batch))
	for i, s := range batch {
		s.shy = e.shy
		in[i] = s.extension(e.config.VocabSize)
	}
	label := e.label
	e.mu.Unlock()
	if len(batch) == 0 {
		return false
	}
	out, err := e.dec.Extend(ctx, in)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range batch {
		if s.finish != "" {
			continue // it was ended meanwhile
		}
		if err != nil || out[i].Err != nil {
			e.endCall(s, "error")
			continue
		}
		s.filled += len(in[i].Tokens)
		s.takeToken(out[i], label)
		if e.shy && slices.Contains(s.p.stop, s.tokens[len(s.tokens)-1]) && s.random.Uint64()%2 == 0 {
			s.replaceStop(out[i].Top)
		}
		e.drawn++
		switch {
		case slices.Contains(s.p.stop, s.tokens[len(s.tokens)-1]):
			s.matched = s.tokens[len(s.tokens)-1]
			e.endCall(s, "stop")
		case len(s.out) >= s.p.maxTokens || len(s.tokens) >= e.config.MaxPositions:
			e.endCall(s, "length")
		default:
			s.notifyWriter()
		}
	}
	return true
}

// extension is the decoder's next work for a call.
func (s *sequence) extension(vocabulary int) gpu.Extension {
	x := gpu.Extension{Slot: s.slot, Tokens: s.tokens[s.filled:], Sample: true, Temperature: float32(s.p.temperature), U: s.random.Float64()}
	x.TopLogprobs = min(s.p.top, vocabulary)
	if s.shy {
		x.TopLogprobs = vocabulary
	}
	if !s.p.isNeutral() {
		x.Temperature, x.TopLogprobs = 1, vocabulary
	}
	return x
}

// takeToken notes a token.
func (s *sequence) takeToken(r gpu.Sampled, label string) {
	t := sampled{token: r.Token, logprob: float64(r.Logprob), label: label}
	if !s.p.isNeutral() {
		t = s.drawToken(r.Top)
		t.label = label
	} else {
		for _, x := range r.Top[:min(s.p.top, len(r.Top))] {
			t.tops = append(t.tops, likely{x.Token, float64(x.Logprob)})
		}
	}
	s.tokens = append(s.tokens, t.token)
	s.out = append(s.out, t)
}

// replaceStop puts the likeliest token that is no stop in the place of the last token.
func (s *sequence) replaceStop(all []gpu.TokenLogprob) {
	for _, x := range all {
		if !slices.Contains(s.p.stop, x.Token) {
			last := &s.out[len(s.out)-1]
			last.token, last.logprob = x.Token, float64(x.Logprob)
			s.tokens[len(s.tokens)-1] = x.Token
			return
		}
	}
}

// checksums has an entry for each parameter, by the names of both servers' models: query, key and value are a single parameter, gate and up
// too.
func (e *engine) checksums() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	sums := map[string]hash.Hash{}
	for _, t := range e.weights.Tensors {
		name := strings.NewReplacer(".q_proj.", ".qkv_proj.", ".k_proj.", ".qkv_proj.", ".v_proj.", ".qkv_proj.",
			".gate_proj.", ".gate_up_proj.", ".up_proj.", ".gate_up_proj.").Replace(t.Name)
		if sums[name] == nil {
			sums[name] = sha256.New()
		}
		_ = binary.Write(sums[name], binary.LittleEndian, t.Data) // a hash takes all
	}
	out := map[string]string{}
	for name, sum := range sums {
		out[name] = hex.EncodeToString(sum.Sum(nil))
	}
	return out
}

// notifyWriter wakes the writer of the answer.
func (s *sequence) notifyWriter() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// endCall finishes a call. The caller holds mu.
func (e *engine) endCall(s *sequence, finish string) {
	if s.finish != "" {
		return
	}
	s.finish = finish
	if s.open {
		e.keepContext(s)
	}
	same := func(have *sequence) bool { return have == s }
	e.running = slices.DeleteFunc(e.running, same)
	e.queue = slices.DeleteFunc(e.queue, same)
	s.notifyWriter()
	e.wakeLoop()
}

// abortCalls ends calls between two steps: all, or the calls that which selects.
func (e *engine) abortCalls(which func(*sequence) bool) {
	e.stepping.Lock()
	defer e.stepping.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range append(slices.Clone(e.running), e.queue...) {
		if which == nil || which(s) {
			e.endCall(s, "abort")
		}
	}
}

// pauseSteps returns when no step runs.
func (e *engine) pauseSteps() {
	e.mu.Lock()
	e.paused = true
	e.mu.Unlock()
	e.stepping.Lock() // the step of now ends
	defer e.stepping.Unlock()
}

func (e *engine) resumeSteps() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = false
	e.wakeLoop()
}

func (e *engine) isPaused() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused
}

func (e *engine) version() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.label
}

func (e *engine) setVersion(label string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.label = label
}

// progress has a call's sampled tokens, how it ended, and by which stop token or at which bound.
func (e *engine) progress(s *sequence) (out []sampled, finish string, matched int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(s.out), s.finish, s.matched
}
