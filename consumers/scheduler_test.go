package consumers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrefixIsReusedAcrossCalls(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	first := ask("a", 1, 2, 3, 4, 5)
	got := r.finish(t, r.start(t, first))
	require.Equal(t, 5+6-1, r.dec.extended, "the last sampled token is not extended")

	// The next turn extends the last sampled token and the observation.
	turn := ask("a", append(append([]int32{1, 2, 3, 4, 5}, got.Tokens...), 9, 9)...)
	before := r.dec.extended
	checkReplay(t, turn, r.finish(t, r.start(t, turn)), 64)
	require.Equal(t, 1+2+6-1, r.dec.extended-before)

	// A rewritten context keeps what is common.
	rewritten := ask("a", 1, 2, 3, 8, 8)
	before = r.dec.extended
	checkReplay(t, rewritten, r.finish(t, r.start(t, rewritten)), 64)
	require.Equal(t, 2+6-1, r.dec.extended-before)

	// The same context again extends its last token alone.
	before = r.dec.extended
	checkReplay(t, rewritten, r.finish(t, r.start(t, rewritten)), 64)
	require.Equal(t, 1+6-1, r.dec.extended-before)
}

func TestLastAndForgetFreeTheSlot(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	last := ask("a", 1)
	last.Last = true
	r.finish(t, r.start(t, last))
	require.Empty(t, r.dec.slots)
	r.finish(t, r.start(t, ask("", 1)))
	require.Empty(t, r.dec.slots, "a call without an episode keeps nothing")
	r.finish(t, r.start(t, ask("b", 1)))
	require.Len(t, r.dec.slots, 1)
	r.Forget("b")
	_, err := r.runStep(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.dec.slots)
	c := r.start(t, ask("c", 1))
	_, err = r.runStep(t.Context())
	require.NoError(t, err)
	r.Forget("c")
	r.finish(t, c)
	require.Empty(t, r.dec.slots, "forgotten while it ran")
}

func TestLeastRecentlyUsedIdleEpisodeIsEvicted(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Slots, cfg.MaxRunning = 2, 0
	r := newReady(t, cfg, false)
	for _, episode := range []string{"a", "b", "a", "c"} { // c takes b's slot
		r.finish(t, r.start(t, ask(episode, 1, 2, 3)))
	}
	require.Contains(t, r.sched.episodes, "a")
	require.Contains(t, r.sched.episodes, "c")
	require.NotContains(t, r.sched.episodes, "b")
}

func TestAnEpisodeThatWaitsIsEvictedLast(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Slots, cfg.MaxRunning = 2, 1
	r := newReady(t, cfg, false)
	for _, episode := range []string{"a", "b"} {
		r.finish(t, r.start(t, ask(episode, 1, 2, 3)))
	}
	c := r.start(t, ask("c", 1, 2, 3))
	again := r.start(t, ask("a", 1, 2, 3))
	r.finish(t, c)
	before := r.dec.extended
	r.finish(t, again)
	require.Equal(t, 1+6-1, r.dec.extended-before, "its cache is still there")
	require.NotContains(t, r.sched.episodes, "b")
}

func TestTwoCallsOfOneEpisodeRunApart(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	req := ask("a", 1, 2)
	one, two := r.start(t, req), r.start(t, req)
	checkReplay(t, req, r.finish(t, one), 64)
	checkReplay(t, req, r.finish(t, two), 64)
	require.Len(t, r.dec.slots, 1)
}

func TestInvariantALongPromptIsTakenInPieces(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false) // a budget of 6
	a := r.start(t, ask("a", 1))
	_, err := r.runStep(t.Context())
	require.NoError(t, err)
	long := ask("b", make([]int32, 14)...)
	b := r.start(t, long)
	for i := range 3 {
		_, err := r.runStep(t.Context())
		require.NoError(t, err)
		require.Len(t, a.context, 1+i+2, "one token a step")
	}
	require.Equal(t, [][]int{{1}, {1, 5}, {1, 5}, {1, 4}}, r.dec.batches)
	require.Len(t, b.context, 15, "sampled with the last piece")
	checkReplay(t, long, r.finish(t, b), 64)
}
