package producers

import (
	"context"
	"sync/atomic"
	"time"
)

// PlaceLock lets one of the calls of a session at a time take the place that they share. NewPlaceLock makes it.
type PlaceLock chan struct{}

// NewPlaceLock returns a lock that nobody holds.
func NewPlaceLock() PlaceLock { return make(PlaceLock, 1) }

// Enter waits, within [HoldTime], until no other call holds the lock. thing is for messages.
func (l PlaceLock) Enter(ctx context.Context, thing string) (leave func(), err error) {
	leave = func() { <-l }
	select {
	case l <- struct{}{}:
		return leave, nil
	default:
	}
	defer HoldTime(ctx, thing)()
	select {
	case l <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Patience bounds a wait among others by their progress: it is over where a count has stood still for a while. NewPatience makes it.
type Patience struct {
	progress *atomic.Uint64
	seen     uint64
	ticker   *time.Ticker // nil is no bound
}

// NewPatience begins a wait that is over where progress stands still for as long as limit; 0 is no bound. The caller calls Stop.
func NewPatience(limit time.Duration, progress *atomic.Uint64) *Patience {
	p := &Patience{progress: progress, seen: progress.Load()}
	if limit > 0 {
		p.ticker = time.NewTicker(limit)
	}
	return p
}

// Look is when IsOver is to be asked; nil never.
func (p *Patience) Look() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

// IsOver reports whether nothing has gone on since it was asked last.
func (p *Patience) IsOver() bool {
	before := p.seen
	p.seen = p.progress.Load()
	return p.seen == before
}

// Stop frees the clock.
func (p *Patience) Stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}
