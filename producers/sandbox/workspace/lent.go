package workspace

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rl/weir/producers/sandbox"
)

// lent is the place of a program of the operator's.
type lent struct {
	place *sandbox.Place
	end   func()
}

// TakePlace is a place for programs of the operator's, which the caller leaves. Where no place is free, a workspace that was started in
// advance gives up its place.
func (m *Manager) TakePlace(ctx context.Context) (*sandbox.Place, error) {
	return m.TakePlaceWithin(ctx, 0)
}

// TakePlaceWithin is TakePlace that gives up as [sandbox.Pool.TakeWithin] does.
func (m *Manager) TakePlaceWithin(ctx context.Context, patience time.Duration) (*sandbox.Place, error) {
	pool, err := m.Ready(ctx)
	if err != nil {
		return nil, err
	}
	if place := pool.TryTake(); place != nil {
		return place, nil
	}
	place, w, err := m.takePlace(ctx, pool, patience)
	if w != nil {
		w.Close()
	}
	return place, err
}

// Lend notes that a program of the operator's runs for an episode on a place, until forget is called: [Manager.FreshAfter] may call end,
// which ends the program, and use the place.
func (m *Manager) Lend(episode string, place *sandbox.Place, end func()) (forget func()) {
	l := &lent{place, end}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent[episode] = append(m.lent[episode], l)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		others := slices.DeleteFunc(m.lent[episode], func(other *lent) bool { return other == l })
		if m.lent[episode] = others; len(others) == 0 {
			delete(m.lent, episode)
		}
	}
}

// firstLent is a place of the operator's programs for an episode; nil where there is none.
func (m *Manager) firstLent(episode string) *lent {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.lent[episode]; len(all) > 0 {
		return all[0]
	}
	return nil
}
