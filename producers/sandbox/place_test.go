package sandbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
)

// heldPlace is what a place is in the naive model.
type heldPlace struct {
	place         *Place
	running, left bool
}

// Findings 12a.6 and 12a.9: a place is its holder's until Leave, whatever ran there, and is free then as soon as nothing runs there; no place has two
// holders, and none is lost. Against a model that keeps a list.
func TestPlacesAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := Default()
		cfg.Most = rapid.IntRange(1, 4).Draw(t, "most")
		p := newPool(cfg)
		over, cancel := context.WithCancel(t.Context())
		cancel() // what would wait ends at once
		var held []*heldPlace
		pick := func(t *rapid.T) *heldPlace {
			if len(held) == 0 {
				t.Skip("no place was ever taken")
			}
			return held[rapid.IntRange(0, len(held)-1).Draw(t, "place")]
		}
		taken := func() (slots map[int]bool) {
			slots = map[int]bool{}
			for _, h := range held {
				if h.running || !h.left {
					require.False(t, slots[h.place.slot], "two hold slot %d", h.place.slot)
					slots[h.place.slot] = true
				}
			}
			return slots
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				full := len(taken()) == cfg.Most
				place, err := p.Take(over)
				require.Equal(t, full, err != nil)
				if !full {
					held = append(held, &heldPlace{place: place})
				}
			},
			"start": func(t *rapid.T) {
				h := pick(t)
				err := h.place.awaitIdle(over)
				require.Equal(t, h.running || h.left, err != nil)
				h.running = h.running || err == nil
			},
			"end": func(t *rapid.T) {
				h := pick(t)
				if !h.running {
					t.Skip("nothing runs there")
				}
				h.place.endProgram()
				h.running = false
			},
			"leave": func(t *rapid.T) {
				h := pick(t)
				h.place.Leave()
				h.left = true
			},
			"": func(t *rapid.T) { require.Equal(t, len(taken()), p.Stats().Running) },
		})
	})
}

// Finding 13 R8: Close ends every wait for a place, although the holder keeps its own; later callers get the error too.
func TestACloseEndsEveryWaitForAPlace(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.Most = 1
	p := newPool(cfg)
	held, err := p.Take(t.Context())
	require.NoError(t, err)
	const waiting = 3
	ended := make(chan error, waiting)
	for range waiting {
		go func() {
			_, err := p.Take(t.Context())
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return p.Stats().Waiting == waiting }, time.Minute, time.Millisecond)
	require.NoError(t, p.Close())
	for range waiting {
		err := <-ended
		require.ErrorIs(t, err, producers.ErrUnavailable)
		require.ErrorContains(t, err, "closed")
	}
	held.Leave()
	_, err = p.Take(t.Context())
	require.ErrorContains(t, err, "closed")
	require.NoError(t, p.Close(), "a second time")
}

// A wait goes on as long as places go from one holder to the next, and ends where none has come free for so long.
func TestAWaitForAPlaceEndsWhereNoneComesFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = time.Minute
		cfg := Default()
		cfg.Most = 2
		p := newPool(cfg)
		held := []*Place{p.TryTake(), p.TryTake()}
		began := time.Now()
		served := make(chan *Place)
		for range 3 {
			go func() {
				place, _ := p.Take(t.Context())
				served <- place
			}()
		}
		synctest.Wait()
		ended := make(chan error)
		go func() {
			_, err := p.TakeWithin(t.Context(), patience)
			ended <- err
		}()
		synctest.Wait()
		for range 3 { // those that came before
			<-time.After(patience - time.Second)
			held[0].Leave()
			held = append(held[1:], <-served)
		}
		err := <-ended
		require.ErrorIs(t, err, producers.ErrNoRoom)
		require.ErrorContains(t, err, "none came free for 1m0s")
		require.Equal(t, 4*patience, time.Since(began), "the last came free in its third minute")
		held[1].Leave()
		place, err := p.TakeWithin(t.Context(), patience)
		require.NoError(t, err)
		require.NotNil(t, place)
	})
}

// The same with many holders at once: no slot has two programs, and all are free at the end.
func TestPlacesOfManyHolders(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.Most = 3
	p := newPool(cfg)
	var running [3]atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				place, err := p.Take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				var ends sync.WaitGroup
				for range rand.IntN(3) {
					if err := place.awaitIdle(t.Context()); err != nil {
						t.Error(err)
					}
					if running[place.slot].Add(1) != 1 {
						t.Error("two programs have one slot")
					}
					ends.Go(func() {
						running[place.slot].Add(-1)
						place.endProgram()
					})
				}
				place.Leave() // while a program may run there
				ends.Wait()
			}
		})
	}
	all.Wait()
	require.Zero(t, p.Stats().Running)
}
