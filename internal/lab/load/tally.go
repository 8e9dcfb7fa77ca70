package load

import (
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
)

// tally holds durations of work that ended while the load was measured. It is safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	open  bool
	took  []time.Duration
	total time.Duration
}

func (t *tally) addTime(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open {
		t.took, t.total = append(t.took, d), t.total+d
	}
}

func (t *tally) setMeasuring(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = on
}

// latency is a tally in milliseconds.
type latency struct {
	Count int `json:"count"`
	harness.Percentiles
	TotalSec float64 `json:"total_seconds"`
}

func (t *tally) sumUp() latency {
	t.mu.Lock()
	defer t.mu.Unlock()
	return latency{Count: len(t.took), Percentiles: harness.PercentilesOf(t.took), TotalSec: t.total.Seconds()}
}
