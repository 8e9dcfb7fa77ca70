package fakeserver

import (
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// prefix is a context whose keys and values are still there, of whatever weights computed them.
type prefix struct {
	salt   string
	tokens []int32
	slot   gpu.Slot
}

// openSlot gives a call a slot: the slot of the longest cached context that its own begins with, under the same salt, or an empty slot.
// It is false where none is free. The caller holds mu.
func (e *engine) openSlot(s *sequence) bool {
	best, most := -1, 0
	for i, p := range e.cached {
		if n := commonPrefix(p.tokens, s.tokens[:len(s.tokens)-1]); p.salt == s.p.salt && n > most {
			best, most = i, n
		}
	}
	if best >= 0 {
		s.slot, s.open, s.filled, s.hit = e.cached[best].slot, true, most, most
		e.dec.Truncate(s.slot, most)
		e.cached = append(e.cached[:best:best], e.cached[best+1:]...)
		return true
	}
	slot, err := e.dec.Open()
	if err != nil && len(e.cached) > 0 {
		e.dec.Close(e.cached[0].slot)
		e.cached = e.cached[1:]
		slot, err = e.dec.Open()
	}
	if err != nil {
		return false
	}
	s.slot, s.open = slot, true
	return true
}

// commonPrefix is how many tokens two contexts begin with alike.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// keepContext puts the context of a call that has ended into the cache. The caller holds mu.
func (e *engine) keepContext(s *sequence) {
	s.open = false
	if s.filled == 0 {
		e.dec.Close(s.slot)
		return
	}
	e.cached = append(e.cached, &prefix{salt: s.p.salt, tokens: s.tokens[:s.filled:s.filled], slot: s.slot})
}

// flushCache empties the cache. The caller holds mu.
func (e *engine) flushCache() {
	for _, p := range e.cached {
		e.dec.Close(p.slot)
	}
	e.cached = nil
}

// forgetCaches clears every cache, so that running calls are computed anew.
func (e *engine) forgetCaches() {
	e.stepping.Lock()
	defer e.stepping.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flushCache()
	for _, s := range e.running {
		e.dec.Truncate(s.slot, 0)
		s.filled = 0
	}
}

// retractRunning has running calls computed anew but for their own contexts, which are found in the cache again.
func (e *engine) retractRunning() {
	e.stepping.Lock()
	defer e.stepping.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.running {
		s.filled = min(s.filled, s.context)
		e.dec.Truncate(s.slot, s.filled)
	}
}

// hasEarlierCalls reports whether calls are under way that came before the pause.
func (e *engine) hasEarlierCalls() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range append(slices.Clip(e.running), e.queue...) {
		if !s.late {
			return true
		}
	}
	return false
}

// hasCall reports whether a call of an id is under way.
func (e *engine) hasCall(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range append(slices.Clip(e.running), e.queue...) {
		if id != "" && s.id == id {
			return true
		}
	}
	return false
}

// countCalls are how many calls run and how many wait.
func (e *engine) countCalls() (running, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running), len(e.queue)
}

// countHits are the tokens of a call's context that were in the cache.
func (e *engine) countHits(s *sequence) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.hit
}
