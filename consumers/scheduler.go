package consumers

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// sequence is a slot of the decoder: the cache of an episode, or of a call that names no episode.
type sequence struct {
	episode string
	slot    gpu.Slot
	call    *call // nil when idle
	// tokens are the episode's while no call runs; the first cached tokens of the context are in the cache.
	tokens []int32
	cached int
	used   uint64 // when it was last used, in admissions
	wanted bool   // idle, and a call of its episode waits
	closed bool   // its slot is another's

	epoch  uint64    // in which its cache began
	sought uint64    // in which it last looked for a donor
	donor  *sequence // has or will have the context's first wants tokens; nil when there is none
	wants  int
	waits  bool // for the donor, in the step being planned
}

// missingTokens is how many tokens must be extended before the next can be sampled; at least 1 while a call runs.
func (s *sequence) missingTokens() int { return len(s.call.context) - s.cached }

// scheduler holds the sequences of a decoder and decides which of them each step extends. A single goroutine uses it.
type scheduler struct {
	cfg     Config
	dec     gpu.Decoder
	metrics *Metrics
	sharing

	running  []*sequence // in order of admission
	idle     map[*sequence]struct{}
	episodes map[string]*sequence // running and idle sequences that have an episode's name
	clock    uint64
	hits     int64 // context tokens found in a cache

	batch []gpu.Extension // of the step being planned
	owner []*sequence     // of each extension
}

func newScheduler(cfg Config, dec gpu.Decoder, m *Metrics) *scheduler {
	return &scheduler{
		cfg: cfg, dec: dec, metrics: m, sharing: newSharing(dec), idle: map[*sequence]struct{}{}, episodes: map[string]*sequence{},
	}
}

// admitCall gives the call a sequence: its episode's own when that is idle, else a free slot, else the slot of the idle
// episode that was used longest ago, preferably an episode for which no call waits. It returns false when there is no slot.
func (s *scheduler) admitCall(c *call) (bool, error) {
	if len(s.running) >= s.cfg.mostRunning() {
		return false, nil
	}
	seq := s.episodes[c.req.Cache()]
	switch {
	case seq != nil && seq.call == nil:
		s.reusePrefix(seq, c)
	default:
		slot, ok, err := s.openSlot()
		if err != nil || !ok {
			return false, err
		}
		// A second call of an episode whose first still runs, as when a producer gave up waiting and asks again, gets
		// a sequence that is freed when the call ends.
		seq = &sequence{slot: slot}
		if name := c.req.Cache(); name != "" && s.episodes[name] == nil {
			seq.episode, s.episodes[name] = name, seq
		}
	}
	s.clock++
	seq.call, seq.used, seq.wanted = c, s.clock, false
	seq.tokens, seq.donor, seq.sought = nil, nil, 0
	s.running = append(s.running, seq)
	return true, nil
}

// reusePrefix keeps the longest common prefix of the cache and the context. The last token of the context is always
// extended, since the first token is sampled from its logits.
func (s *scheduler) reusePrefix(seq *sequence, c *call) {
	delete(s.idle, seq)
	n := commonPrefix(seq.tokens[:seq.cached], c.context[:len(c.context)-1])
	if n < seq.cached {
		s.dec.Truncate(seq.slot, n)
		seq.cached = n
	}
	s.hits += int64(n)
	s.metrics.cacheHits.Add(float64(n))
}

// markWanted marks the idle sequences that waiting calls will continue, so that others are evicted before them.
func (s *scheduler) markWanted(waiting []*call) {
	if len(s.running)+len(s.idle) < s.cfg.Slots {
		return
	}
	for _, c := range waiting {
		if seq := s.episodes[c.req.Cache()]; seq != nil && seq.call == nil {
			seq.wanted = true
		}
	}
}

func (s *scheduler) openSlot() (gpu.Slot, bool, error) {
	if len(s.running)+len(s.idle) >= s.cfg.Slots {
		oldest := s.oldestIdle()
		if oldest == nil {
			return 0, false, nil
		}
		s.metrics.evictions.Inc()
		s.closeSlot(oldest)
	}
	slot, err := s.dec.Open()
	if err != nil {
		return 0, false, fmt.Errorf("open a slot of the decoder with %d of %d taken: %w",
			len(s.running)+len(s.idle), s.cfg.Slots, err)
	}
	return slot, true, nil
}

// oldestIdle is the idle sequence to evict: the least recently used sequence that no call waits for, else the least recently used.
func (s *scheduler) oldestIdle() *sequence {
	var oldest *sequence
	for seq := range s.idle {
		if oldest == nil || !seq.wanted && oldest.wanted || seq.wanted == oldest.wanted && seq.used < oldest.used {
			oldest = seq
		}
	}
	return oldest
}

// closeSlot frees the slot of a sequence that does not run.
func (s *scheduler) closeSlot(seq *sequence) {
	s.dec.Close(seq.slot)
	seq.closed = true
	delete(s.idle, seq)
	if seq.episode != "" {
		delete(s.episodes, seq.episode)
	}
}

// planStep fills batch with the extensions of the next step: the last token of every sequence that samples, and pieces of
// prompts, oldest call first, up to the step's budget. The budget is at least the number of slots, so that every step
// takes every sampling sequence and some of the oldest prompt. A prompt that begins as an older prompt does waits for it.
func (s *scheduler) planStep() {
	s.batch, s.owner = s.batch[:0], s.owner[:0]
	budget := s.cfg.StepTokenBudget
	for i, seq := range s.running {
		seq.waits = s.sharePrefix(seq, s.running[:i])
		if seq.missingTokens() == 1 {
			budget--
		}
	}
	for _, seq := range s.running {
		n := seq.missingTokens()
		switch {
		case seq.waits:
			n = 0
		case n > 1:
			n = min(n, budget)
			budget -= n
		}
		if n > 0 {
			c := seq.call
			s.batch = append(s.batch, gpu.Extension{
				Slot: seq.slot, Tokens: c.context[seq.cached : seq.cached+n], Sample: n == seq.missingTokens(),
				Temperature: c.req.Temperature, U: uniformAt(c.req.Seed, len(c.context)),
			})
			s.owner = append(s.owner, seq)
		}
	}
}

// retireEnded takes the sequences whose calls have ended out of running. Each keeps its cache for its episode's next call,
// or frees its slot when none will come.
func (s *scheduler) retireEnded() {
	kept := s.running[:0]
	for _, seq := range s.running {
		if seq.call != nil {
			kept = append(kept, seq)
			continue
		}
		if seq.episode == "" {
			s.closeSlot(seq)
			continue
		}
		s.idle[seq] = struct{}{}
	}
	clear(s.running[len(kept):])
	s.running = kept
}

// leaveSequence ends the sequence's call. Without keep its cache is freed too.
func (s *scheduler) leaveSequence(seq *sequence, keep bool) {
	seq.tokens = seq.call.context[:seq.cached]
	if seq.call.req.Last || !keep {
		s.dropEpisode(seq.episode)
	}
	seq.call = nil
}

// dropEpisode frees the episode's cache, at the end of its call when a call runs.
func (s *scheduler) dropEpisode(episode string) {
	seq := s.episodes[episode]
	switch {
	case seq == nil:
	case seq.call == nil:
		s.closeSlot(seq)
	default:
		delete(s.episodes, episode)
		seq.episode = ""
	}
}

// forgetCaches clears every cache: running sequences start over, idle ones free their slots.
func (s *scheduler) forgetCaches() {
	for seq := range s.idle {
		s.closeSlot(seq)
	}
	for _, seq := range s.running {
		if seq.cached > 0 {
			s.dec.Truncate(seq.slot, 0)
			s.metrics.recomputed.Add(float64(seq.cached))
			seq.cached = 0
		}
	}
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
