package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/gpu"
)

// runStep drops, swaps and admits and, if any sequence runs, extends the running sequences. It reports whether any
// sequence runs.
func (b *Batcher) runStep(ctx context.Context) (busy bool, err error) {
	b.dropCancelled()
	b.dropForgotten()
	b.applySwap()
	if err := b.admitCalls(); err != nil {
		return false, err
	}
	b.observeLoad()
	if b.sched == nil || len(b.sched.running) == 0 {
		return false, nil
	}
	return true, b.extendSequences(ctx)
}

// dropCancelled ends the running calls whose callers have gone. Their caches stay: a caller may ask again.
func (b *Batcher) dropCancelled() {
	if b.sched == nil {
		return
	}
	var any bool
	for _, seq := range b.sched.running {
		if seq.call.ctx.Err() != nil {
			b.sched.leaveSequence(seq, true)
			any = true
		}
	}
	if any {
		b.sched.retireEnded()
	}
}

func (b *Batcher) dropForgotten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sched != nil {
		for _, episode := range b.forget {
			b.sched.dropEpisode(episode)
		}
	}
	b.forget = b.forget[:0]
}

// admitCalls starts waiting calls, first come first served, while there are slots, and drops the calls whose callers have
// gone. Calls that want newer weights go on waiting. No call starts while a swap waits for the running calls to finish.
func (b *Batcher) admitCalls() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sched == nil || b.pending != nil {
		return nil
	}
	b.sched.markWanted(b.waiting)
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
		ok, err := b.sched.admitCall(c)
		if err != nil {
			failed = err
		}
		if !ok {
			left, full = append(left, c), true
		}
	}
	clear(b.waiting[len(left):])
	b.waiting = left
	b.free = b.cfg.mostRunning() - len(b.sched.running)
	return failed
}

// extendSequences extends the running sequences as planned, and takes a token for each complete context.
func (b *Batcher) extendSequences(ctx context.Context) error {
	started := time.Now()
	s := b.sched
	s.planStep()
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
			ended = b.addToken(seq, &results[i], version) || ended
		}
	}
	if ended {
		s.retireEnded()
	}
	b.metrics.prefilled.Add(float64(prefilled))
	b.metrics.batchSize.Observe(float64(len(results)))
	b.metrics.batchTokens.Observe(float64(total))
	b.metrics.stepSeconds.Observe(time.Since(started).Seconds())
	return nil
}

// addToken gives a sequence its next token and reports whether its call has ended.
func (b *Batcher) addToken(seq *sequence, next *gpu.Sampled, version int32) bool {
	c := seq.call
	if next.Err != nil {
		c.failCall(fmt.Sprintf("sample token %d with weights of version %d: %v", len(c.context), version, next.Err), false)
		b.sched.leaveSequence(seq, false)
		return true
	}
	stop, ended := c.recordToken(next.Token, next.Logprob, version)
	switch {
	case ended:
		c.endCall(stop)
		b.sched.leaveSequence(seq, true)
	case len(c.tokens) >= c.chunk:
		c.flushTokens()
	}
	return ended
}

// observeLoad notes how busy the Batcher is.
func (b *Batcher) observeLoad() {
	if b.sched == nil {
		return
	}
	l := Load{Running: len(b.sched.running), Idle: len(b.sched.idle), PrefixHits: b.sched.hits}
	l.CacheUse = float64(l.Running+l.Idle) / float64(b.cfg.Slots)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load = l
}
