package servers

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// lease is a call's place at a server. It ends with release.
type lease struct {
	server *server
	epoch  *epoch
	// ctx ends with the call, and when the server is no longer fit.
	ctx    context.Context //nolint:containedctx // a lease is the part of a call that a server has
	cancel context.CancelCauseFunc
	// began is whether anything has come from the server.
	began atomic.Bool
	// arrived counts the tokens of the answer that have come; vouched counts the tokens that came before the server was last seen to have
	// the epoch's weights.
	arrived, vouched atomic.Int64
}

// Sticky calls move where their server has stickyFactor times the least load and stickySlack more.
const (
	stickyFactor = 1.5
	stickySlack  = 4
)

// takePlace waits for a server that is fit for a call, and takes a place at it: at another server than avoid, which may be nil. It is
// errNoOther where no other server has the call's version. late is set while no server has the version that the call asks for.
func (p *Pool) takePlace(ctx context.Context, req *schemas.GenerateRequest, avoid *server) (*lease, *schemas.GenerateChunk, error) {
	var late <-chan time.Time
	p.mu.Lock()
	for {
		switch {
		case p.closed:
			p.mu.Unlock()
			return nil, refusalChunk(errStopping.Error(), true), nil
		case p.version < 0:
			p.mu.Unlock()
			return nil, busyChunk("no weights yet"), nil
		case avoid != nil && !p.servesElsewhere(avoid, req.MinVersion):
			p.mu.Unlock()
			return nil, nil, errNoOther
		}
		if s := p.chooseServer(req.Episode, req.MinVersion, avoid); s != nil {
			l := s.newLease(ctx)
			p.seats.seatEpisode(req.Episode, s, s.state.epoch)
			p.mu.Unlock()
			return l, nil, nil
		}
		if p.waiting >= p.cfg.Queue {
			p.mu.Unlock()
			return nil, busyChunk(fmt.Sprintf("%d calls are waiting already", p.cfg.Queue)), nil
		}
		if p.version < req.MinVersion && late == nil {
			timer := time.NewTimer(p.versionWait)
			defer timer.Stop()
			late = timer.C
		}
		changed := p.changed
		p.waiting++
		p.mu.Unlock()
		var end error
		refused := false
		select {
		case <-changed:
		case <-late:
			refused = true
		case <-ctx.Done():
			end = context.Cause(ctx)
		}
		p.mu.Lock()
		p.waiting--
		v := p.version
		switch {
		case end != nil:
			p.mu.Unlock()
			return nil, nil, end
		case refused && v < req.MinVersion:
			p.mu.Unlock()
			return nil, refusalChunk(fmt.Sprintf("has version %d and waited %s for version %d", v, p.versionWait, req.MinVersion), true), nil
		case refused:
			late = nil
		}
	}
}

// newLease gives a call a place. The caller holds mu.
func (s *server) newLease(ctx context.Context) *lease {
	l := &lease{server: s, epoch: s.state.epoch}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	s.state.leases[l] = struct{}{}
	return l
}

// chooseServer is the server for a call: where the episode's cache is, unless that is much busier than the least busy, or its weights
// have changed, so that the cache is of no use; nil where no server but avoid is fit. The caller holds mu.
func (p *Pool) chooseServer(episode string, minVersion int64, avoid *server) *server {
	var least *server
	most := p.cfg.MaxRunning
	if most == 0 {
		most = p.cfg.Slots
	}
	room := func(s *server) bool {
		return s != avoid && s.state.fit && !s.state.swapping && s.state.epoch.version >= minVersion && len(s.state.leases) < most
	}
	for _, s := range p.servers {
		if room(s) && (least == nil || s.busyness() < least.busyness()) {
			least = s
		}
	}
	if least == nil {
		return nil
	}
	if seat := p.seats.seatOf(episode); seat != nil && room(seat.server) && seat.epoch == seat.server.state.epoch &&
		seat.server.busyness() <= int(math.Ceil(stickyFactor*float64(least.busyness())))+stickySlack {
		return seat.server
	}
	return least
}

// releasePlace gives a place back.
func (p *Pool) releasePlace(l *lease) {
	l.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(l.server.state.leases, l)
	if p.waiting > 0 || l.server.state.swapping {
		p.notifyWaiting()
	}
}

// judgeServer notes how a call of an epoch ended at a server: without an error its doubts are over.
func (p *Pool) judgeServer(s *server, e *epoch, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e != s.state.epoch:
	case err == nil:
		s.state.doubts = 0
	case s.state.fit && !s.state.swapping:
		s.state.doubts++
		s.state.doubt = err
		s.kickKeeper()
	}
}

// refusalChunk is the chunk that ends a call unserved.
func refusalChunk(reason string, retry bool) *schemas.GenerateChunk {
	return &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: reason, Retry: retry}
}

// busyChunk is the chunk that ends a call for which there is no room yet.
func busyChunk(reason string) *schemas.GenerateChunk {
	chunk := refusalChunk(reason, true)
	chunk.Busy = true
	return chunk
}
