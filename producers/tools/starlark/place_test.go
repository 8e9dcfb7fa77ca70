package starlark

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tools"
)

// Finding 15a.4: the first cell of an episode waited for a Starlark worker in the time of the episode and of the call. What was left of the episode was cut
// off and trained on. With workers that several share it is the place of a session that is waited for.
func TestTheFirstCellOfAnEpisodeOutwaitsItsTimeLimit(t *testing.T) {
	t.Parallel()
	for _, share := range []int{1, 3} {
		t.Run(strconv.Itoa(share), func(t *testing.T) {
			t.Parallel()
			tool := newTool(t, func(cfg *Config) { cfg.Workers, cfg.SessionsPerWorker = 1, share })
			for i := range share - 1 {
				episode := fmt.Sprint("other ", i)
				open(t, tool, episode)
				run(t, tool, episode, "1")
			}
			workspacetest.OutwaitPlace(t, tools.Within(tool, workspacetest.OutwaitLimit), "6 * 7", "42", tool.few.Load)
		})
	}
}

// A place is waited for without a process. It is the episode's own as soon as places are few. A cell that is refused takes none.
func TestACellTakesItsPlaceAndStartsNothing(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.Workers, cfg.SessionsPerWorker = 1, 2 })
	for _, episode := range []string{"a", "b", "c"} {
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
	}
	take := func(episode, code string) (bool, error) {
		return producers.TakePlaceOf(t.Context(), tools.Within(tool, time.Minute), producers.Call{Episode: episode, Arguments: code}, time.Millisecond)
	}
	own, err := take("a", strings.Repeat("x", tool.cfg.CodeBytes+1))
	require.NoError(t, err)
	require.False(t, own)
	require.Empty(t, tool.places)
	for _, episode := range []string{"a", "b", "a"} {
		own, err = take(episode, "1")
		require.NoError(t, err)
		require.False(t, own, "nobody waits for it")
	}
	require.Len(t, tool.places, 2)
	require.Empty(t, tool.workers)
	own, err = take("c", "1")
	require.ErrorIs(t, err, producers.ErrNoRoom)
	require.ErrorContains(t, err, "raise workers")
	require.False(t, own)
	own, err = take("a", "1")
	require.NoError(t, err)
	require.True(t, own, "episodes that have it and wait for another thing could wait for each other")
	require.NoError(t, tool.Close(t.Context(), "a"))
	_, err = take("c", "1")
	require.NoError(t, err)
	require.Equal(t, "2", run(t, tool, "c", "1 + 1").Text)
	require.Equal(t, "3", run(t, tool, "b", "1 + 2").Text)
	require.Same(t, workerOf(t, tool, "b"), workerOf(t, tool, "c"))
	own, err = take("a", "1")
	require.NoError(t, err)
	require.False(t, own, "it is closed, and its call says so")
	for _, episode := range []string{"b", "c"} {
		require.NoError(t, tool.Close(t.Context(), episode))
	}
	require.Empty(t, tool.places)
}

// An episode that is closed while it takes its place keeps none.
func TestAnEpisodeThatIsClosedKeepsNoPlace(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.Workers = 1 })
	for _, episode := range []string{"a", "b"} {
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
	}
	call := func(episode string) producers.Call { return producers.Call{Episode: episode, Arguments: "1"} }
	_, err := tool.TakePlace(t.Context(), call("a"), 0)
	require.NoError(t, err)
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			_, err := tool.TakePlace(t.Context(), call("b"), 0)
			if !errors.Is(err, producers.ErrUnavailable) || errors.Is(err, producers.ErrNoRoom) {
				t.Errorf("%v", err)
			}
		})
	}
	require.Eventually(t, tool.few.Load, patient, time.Millisecond)
	require.NoError(t, tool.Close(t.Context(), "b"))
	require.NoError(t, tool.Close(t.Context(), "a"))
	waiting.Wait()
	require.Empty(t, tool.places)
}

// A session that lost its worker gets a worker of its own where all places of a worker are free, and has them all: others with a place would
// find no worker. Where they are not free it shares its next worker.
func TestASessionWithAWorkerOfItsOwnHasAllPlacesOfIt(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(cfg *Config) { cfg.Workers, cfg.SessionsPerWorker = 2, 2 })
	const ends = "list(range(1 << 62))"
	for _, episode := range []string{"a", "b"} {
		open(t, tool, episode)
		run(t, tool, episode, "1")
	}
	require.Contains(t, run(t, tool, "a", ends).Text, "all variables are gone")
	require.Contains(t, run(t, tool, "b", "2").Text, "started anew")
	require.True(t, workerOf(t, tool, "b").own)
	require.Len(t, tool.places, 3)
	for _, episode := range []string{"c", "d"} {
		open(t, tool, episode)
	}
	require.Equal(t, "3", run(t, tool, "c", "3").Text)
	_, err := tool.TakePlace(t.Context(), producers.Call{Episode: "d", Arguments: "1"}, time.Millisecond)
	require.ErrorIs(t, err, producers.ErrNoRoom)
	require.Equal(t, "4", run(t, tool, "a", "4").Text)
	require.Same(t, workerOf(t, tool, "a"), workerOf(t, tool, "c"))

	require.Contains(t, run(t, tool, "a", ends).Text, "all variables are gone")
	require.Contains(t, run(t, tool, "c", "5").Text, "started anew")
	require.False(t, workerOf(t, tool, "c").own, "the other place of its worker is a's")
	require.Equal(t, "6", run(t, tool, "a", "6").Text)
	require.NoError(t, tool.Close(t.Context(), "b"))
	require.Len(t, tool.places, 2)
	require.Equal(t, "7", run(t, tool, "d", "7").Text)
}

// A session with a place finds room in a worker, whichever sessions come, go, and end their workers. Were a place for a session in a worker
// that begins to wait for another worker, or a session with a worker of its own to take one place alone, cells would wait without end.
func TestASessionWithAPlaceFindsAWorker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		share, workers := rapid.IntRange(1, 3).Draw(rt, "share"), rapid.IntRange(1, 2).Draw(rt, "workers")
		tool := newTool(t, func(cfg *Config) { cfg.SessionsPerWorker, cfg.Workers, cfg.Steps = share, workers, 1<<60 })
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		var all sync.WaitGroup
		for i := range rapid.IntRange(1, 6).Draw(rt, "episodes") {
			cells := rapid.SliceOfN(rapid.SampledFrom([]string{"1", "1", "list(range(1 << 62))"}), 1, 3).Draw(rt, "cells")
			all.Go(func() {
				episode := strconv.Itoa(i)
				if err := tool.Open(ctx, producers.Session{Episode: episode}); err != nil {
					t.Error(err)
				}
				for _, cell := range cells {
					call := producers.Call{Episode: episode, Arguments: cell}
					if _, err := tool.TakePlace(ctx, call, 0); err != nil {
						t.Error(err)
					}
					// A worker that ends between two of its cells, by the cell of a neighbour, is known to have been ended by that.
					if _, err := tool.Call(ctx, call); err != nil {
						t.Errorf("%s: %v", cell, err)
					}
				}
				if err := tool.Close(ctx, episode); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Empty(rt, tool.places)
		require.Empty(rt, tool.workers)
	})
}
