package workspace

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

// fillReserve starts workspaces in advance until there are enough, as long as places are free: it waits for none. The lock is held.
func (m *Manager) fillReserve() {
	if cap(m.warm) == 0 || m.closed || m.programs.Load() && !m.wanted.Load() {
		return // programs alone need no workspace
	}
	select {
	case m.filling <- struct{}{}:
	default:
		return // another call does
	}
	pool := m.pool
	m.filler.Go(func() {
		defer func() { <-m.filling }()
		for m.ctx.Err() == nil && len(m.warm) < cap(m.warm) {
			place := pool.TryTake()
			if place == nil {
				return // whoever takes a workspace later tries again
			}
			w, err := openWorkspace(m.ctx, place)
			if err != nil {
				place.Leave()
				return // the next episode tries again, and gets the error
			}
			m.warm <- w // there is room: nobody else fills
		}
	})
}

// takePlace waits for a place of the pool. w is the workspace on it that was started in advance; nil where there is none. It gives up as
// [sandbox.Pool.TakeWithin] does.
func (m *Manager) takePlace(ctx context.Context, pool *sandbox.Pool, patience time.Duration) (
	place *sandbox.Place, w *Workspace, err error,
) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.fillReserve()
	}()
	for w = m.takeWarm(); w != nil; w = m.takeWarm() {
		if !w.Gone() {
			return w.place, w, nil
		}
		w.place.Leave()
	}
	if place = pool.TryTake(); place != nil {
		return place, nil, nil
	}
	return m.awaitPlace(ctx, pool, patience)
}

// waitForPlace is the wait of an episode among those that have not returned.
const waitForPlace = "a place for its sandbox (sandbox.most)"

// awaitPlace waits for a place, or for a workspace that is started in advance meanwhile, until the manager is closed.
func (m *Manager) awaitPlace(ctx context.Context, pool *sandbox.Pool, patience time.Duration) (
	place *sandbox.Place, w *Workspace, err error,
) {
	defer producers.HoldTime(ctx, waitForPlace)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type taken struct {
		place *sandbox.Place
		err   error
	}
	got := make(chan taken, 1)
	go func() {
		place, err := pool.TakeWithin(ctx, patience)
		got <- taken{place, err}
	}()
	giveBack := func() {
		cancel()
		if t := <-got; t.place != nil {
			t.place.Leave()
		}
	}
	for {
		select {
		case t := <-got:
			return t.place, nil, t.err
		case <-m.ctx.Done():
			giveBack()
			return nil, nil, errClosed
		case w := <-m.warm:
			if w.Gone() {
				w.place.Leave()
				continue
			}
			giveBack()
			return w.place, w, nil
		}
	}
}

// takeWarm is a workspace that was started in advance, and nil where there is none.
func (m *Manager) takeWarm() *Workspace {
	select {
	case w := <-m.warm:
		return w
	default:
		return nil
	}
}

// Fresh is a workspace that belongs to no episode, which Close of the workspace ends.
func (m *Manager) Fresh(ctx context.Context) (*Workspace, error) {
	pool, err := m.Ready(ctx)
	if err != nil {
		return nil, err
	}
	place, w, err := m.takePlace(ctx, pool, 0)
	if err != nil {
		return nil, err
	}
	defer place.Leave() // it is free when the workspace has ended
	if w == nil {
		return openWorkspace(ctx, place)
	}
	return w, nil
}

// FreshAfter is Fresh for programs that run after an episode's last turn and may not share a sandbox with the policy, such as the tests
// of its code. The episode's own workspace ends, or a program of [Manager.Lend], and the place is used: the holder of a place waits for
// no second place.
func (m *Manager) FreshAfter(ctx context.Context, episode string) (*Workspace, error) {
	if p := m.placeOf(episode); p != nil {
		if w, err := p.replaceWorkspace(ctx); w != nil || err != nil {
			return w, err
		}
	}
	if l := m.firstLent(episode); l != nil {
		l.end()
		return openWorkspace(ctx, l.place)
	}
	return m.Fresh(ctx)
}

// replaceWorkspace ends the episode's workspace and starts another on its place; nil where it has no place in the pool.
func (p *place) replaceWorkspace(ctx context.Context) (*Workspace, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil || p.over {
		return nil, nil
	}
	for _, w := range p.listOpen() {
		w.Close()
	}
	p.fresh = nil
	return openWorkspace(ctx, p.kept)
}

// TakeFor waits until the episode has its place in the pool, which it keeps until it leaves, and starts nothing. It gives up as
// [sandbox.Pool.TakeWithin] does. The wait is within [producers.HoldTime].
func (m *Manager) TakeFor(ctx context.Context, episode string, patience time.Duration) error {
	_, err := m.keepPlace(ctx, episode, patience)
	return err
}

// keepPlace is TakeFor that returns what the episode has.
func (m *Manager) keepPlace(ctx context.Context, episode string, patience time.Duration) (*place, error) {
	p := m.placeOf(episode)
	if p == nil {
		return nil, fmt.Errorf("%w: episode %q has no open session", producers.ErrUnavailable, episode)
	}
	if has, err := p.keepsPlace(episode); has || err != nil {
		return p, err
	}
	leave, err := p.taking.Enter(ctx, waitForPlace)
	if err != nil {
		return nil, err
	}
	defer leave()
	if has, err := p.keepsPlace(episode); has || err != nil {
		return p, err
	}
	pool, err := m.Ready(ctx)
	if err != nil {
		return nil, err
	}
	place, w, err := m.takePlace(ctx, pool, patience)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		if w != nil {
			w.Close()
		}
		place.Leave()
		return nil, closedEpisodeError(episode)
	}
	p.kept, p.fresh = place, w
	return p, nil
}

// keepsPlace reports whether the episode has its place in the pool. It fails where the episode has left.
func (p *place) keepsPlace(episode string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false, closedEpisodeError(episode)
	}
	return p.kept != nil, nil
}
