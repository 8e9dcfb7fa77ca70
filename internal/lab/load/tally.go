package load

import (
	"slices"
	"sync"
	"time"
)

// tally holds how long each of something took, of those that ended while it was measured. It is safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	open  bool
	took  []time.Duration
	total time.Duration
}

func (t *tally) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open {
		t.took, t.total = append(t.took, d), t.total+d
	}
}

func (t *tally) measure(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = on
}

// latency is a tally in milliseconds.
type latency struct {
	Count    int     `json:"count"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	TotalSec float64 `json:"total_seconds"`
}

func (t *tally) latency() latency {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.took) == 0 {
		return latency{}
	}
	slices.Sort(t.took)
	at := func(q float64) float64 { return t.took[int(q*float64(len(t.took)-1))].Seconds() * 1e3 }
	return latency{Count: len(t.took), P50: at(0.5), P99: at(0.99), TotalSec: t.total.Seconds()}
}
