package kernel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Pool bounds the goroutines that share an engine's work. A caller works on its own call and takes helpers only when some are
// idle, so no call ever waits for a place: calls may be nested and made from many goroutines at once. A nil Pool runs
// everything on the caller. Nothing needs closing.
type Pool struct {
	workers int
	// idle is the number of helpers that may still be taken.
	idle atomic.Int64
}

// NewPool makes a pool of that many workers, the caller counted; 0 or less is GOMAXPROCS.
func NewPool(workers int) *Pool {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{workers: workers}
	p.idle.Store(int64(workers - 1))
	return p
}

// Workers is the number of workers, 1 for a nil Pool.
func (p *Pool) Workers() int {
	if p == nil {
		return 1
	}
	return p.workers
}

// ParallelFor calls f on ranges that cover [0, n) once, each of at least grain items but the last, and
// returns when all are done. Ranges are handed out in order as workers come free. A panic in f is raised
// again on the caller.
func (p *Pool) ParallelFor(n, grain int, f func(lo, hi int)) {
	if n <= 0 {
		return
	}
	grain = max(grain, 1)
	if p == nil || p.workers == 1 || n <= grain {
		f(0, n)
		return
	}
	// A few ranges a worker even out a late worker.
	size := max(grain, (n+4*p.workers-1)/(4*p.workers))
	ranges := (n + size - 1) / size
	helpers := p.takeHelpers(min(ranges, p.workers) - 1)
	if helpers == 0 {
		f(0, n)
		return
	}
	j := &job{f: f, n: n, size: size}
	j.done.Add(helpers)
	for range helpers {
		go func() {
			defer j.done.Done()
			defer p.idle.Add(1)
			j.runRanges()
		}()
	}
	j.runRanges()
	j.done.Wait()
	if v := j.panicked.Load(); v != nil {
		panic(v.value)
	}
}

// takeHelpers reserves up to want helpers and returns how many it got.
func (p *Pool) takeHelpers(want int) int {
	for {
		have := p.idle.Load()
		got := min(int64(want), have)
		if got <= 0 {
			return 0
		}
		if p.idle.CompareAndSwap(have, have-got) {
			return int(got)
		}
	}
}

// job is a single ParallelFor: its workers draw ranges from next until none is left.
type job struct {
	f        func(lo, hi int)
	n, size  int
	next     atomic.Int64
	done     sync.WaitGroup
	panicked atomic.Pointer[raised]
}

type raised struct{ value any }

func (j *job) runRanges() {
	defer func() {
		if v := recover(); v != nil {
			j.panicked.CompareAndSwap(nil, &raised{v})
		}
	}()
	for j.panicked.Load() == nil {
		hi := int(j.next.Add(int64(j.size)))
		lo := hi - j.size
		if lo >= j.n {
			return
		}
		j.f(lo, min(hi, j.n))
	}
}
