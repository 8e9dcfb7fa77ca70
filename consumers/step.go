package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/gpu"
)

// step drops, swaps and admits what is due and, if any sequence runs, extends the running sequences. It says whether any
// sequence runs.
func (b *Batcher) step(ctx context.Context) (busy bool, err error) {
	b.dropCancelled()
	b.dropForgotten()
	b.applySwap()
	if err := b.admit(); err != nil {
		return false, err
	}
	b.observe()
	if b.sched == nil || len(b.sched.running) == 0 {
		return false, nil
	}
	return true, b.extend(ctx)
}

// dropCancelled ends the running calls whose callers have gone. Their caches stay: a caller may ask again.
func (b *Batcher) dropCancelled() {
	if b.sched == nil {
		return
	}
	var any bool
	for _, seq := range b.sched.running {
		if seq.call.ctx.Err() != nil {
			b.sched.leave(seq, true)
			any = true
		}
	}
	if any {
		b.sched.retire()
	}
}

func (b *Batcher) dropForgotten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sched != nil {
		for _, episode := range b.forget {
			b.sched.drop(episode)
		}
	}
	b.forget = b.forget[:0]
}

// admit starts waiting calls, first come first served, while there are slots, and drops the calls whose callers have
// gone. Calls that want newer weights go on waiting. No call starts while a swap waits for the running calls to finish.
func (b *Batcher) admit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sched == nil || b.pending != nil {
		return nil
	}
	b.sched.want(b.waiting)
	var failed error
	left, full := b.waiting[:0], false
	for _, c := range b.waiting {
		if c.ctx.Err() != nil {
			continue
		}
		if c.req.MinVersion > b.version.Load() || full {
			left = append(left, c)
			continue
		}
		ok, err := b.sched.admit(c)
		if err != nil {
			failed = err
		}
		if !ok {
			left, full = append(left, c), true
		}
	}
	clear(b.waiting[len(left):])
	b.waiting = left
	b.free = b.cfg.running() - len(b.sched.running)
	return failed
}

// extend appends to the running sequences what the plan says, and takes a token for each complete context.
func (b *Batcher) extend(ctx context.Context) error {
	started := time.Now()
	s := b.sched
	s.plan()
	results, err := s.dec.Extend(ctx, s.batch)
	if err != nil {
		return fmt.Errorf("extend %d sequences: %w", len(s.batch), err)
	}
	version := int32(b.version.Load())
	var prefilled, total int
	var ended bool
	for i, seq := range s.owner {
		n := len(s.batch[i].Tokens)
		total += n
		prefilled += max(0, min(seq.cached+n, len(seq.call.req.Tokens))-seq.cached)
		seq.cached += n
		if s.batch[i].Sample {
			ended = b.add(seq, &results[i], version) || ended
		}
	}
	if ended {
		s.retire()
	}
	b.metrics.prefilled.Add(float64(prefilled))
	b.metrics.batchSize.Observe(float64(len(results)))
	b.metrics.batchTokens.Observe(float64(total))
	b.metrics.stepSeconds.Observe(time.Since(started).Seconds())
	return nil
}

// add gives a sequence its next token and says whether its call has ended.
func (b *Batcher) add(seq *sequence, next *gpu.Sampled, version int32) bool {
	c := seq.call
	if next.Err != nil {
		c.fail(fmt.Sprintf("sample token %d with weights of version %d: %v", len(c.context), version, next.Err), false)
		b.sched.leave(seq, false)
		return true
	}
	stop, ended := c.add(next.Token, next.Logprob, version)
	switch {
	case ended:
		c.end(stop)
		b.sched.leave(seq, true)
	case len(c.tokens) >= c.chunk:
		c.flush()
	}
	return ended
}

// observe notes how busy the Batcher is.
func (b *Batcher) observe() {
	if b.sched == nil {
		return
	}
	l := Load{Running: len(b.sched.running), Idle: len(b.sched.idle), PrefixHits: b.sched.hits}
	l.CacheUse = float64(l.Running+l.Idle) / float64(b.cfg.Slots)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load = l
}
