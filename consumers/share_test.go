package consumers

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// newSharingRig is a rig whose sequences share prefixes of any length.
func newSharingRig(t *testing.T, cfg Config) *rig {
	r := newRig(cfg, false)
	r.shares = true
	_, err := r.offer(0)
	require.NoError(t, err)
	_, err = r.runStep(t.Context())
	require.NoError(t, err)
	r.sched.least = 1
	return r
}

// group is a prompt's samples, asked for at once.
func group(t *testing.T, r *rig, prompt []int32, n int) (calls []*call, asked []*schemas.GenerateRequest) {
	for i := range n {
		req := ask(fmt.Sprint("sample ", i), prompt...)
		req.Seed = uint64(i)
		calls, asked = append(calls, r.start(t, req)), append(asked, req)
	}
	return calls, asked
}

func TestTheSamplesOfAGroupComputeTheirPromptOnce(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Slots, cfg.MaxRunning, cfg.StepTokenBudget = 8, 0, 8
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
	r := newSharingRig(t, cfg)
	calls, asked := group(t, r, prompt, 8)
	sampled := 0
	for i, c := range calls {
		got := r.finish(t, c)
		checkReplay(t, asked[i], got, 64)
		sampled += len(got.Tokens)
	}
	require.Equal(t, 7*(len(prompt)-1), r.dec.shared)
	require.Equal(t, len(prompt)+7+sampled-8, r.dec.extended, "the prompt once, its last token for each, and what was sampled but for the last")
	require.EqualValues(t, 7*(len(prompt)-1), r.Load().PrefixHits)

	// A turn later each has its own cache, and another sample of the prompt has an idle one's.
	before := r.dec.shared
	more := ask("sample 0", append(append([]int32(nil), prompt...), 5, 5, 5)...)
	checkReplay(t, more, r.finish(t, r.start(t, more)), 64)
	require.Equal(t, before, r.dec.shared)
	late := ask("late", prompt...)
	checkReplay(t, late, r.finish(t, r.start(t, late)), 64)
	require.Equal(t, before+len(prompt)-1, r.dec.shared)
}

func TestAShortBeginningIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newSharingRig(t, smallConfig())
	r.sched.least = shareLeast
	for _, c := range []*call{r.start(t, ask("a", 1, 2, 3, 4)), r.start(t, ask("b", 1, 2, 3, 5))} {
		r.finish(t, c)
	}
	require.Zero(t, r.dec.shared)
}

// The sequence that others wait for ends before its context is computed: they go on without it.
func TestASampleWhoseCallerLeftIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{true, false} {
		cfg := smallConfig() // a budget of 6
		r := newSharingRig(t, cfg)
		prompt := make([]int32, 20)
		first := ask("", prompt...)
		if named {
			first.Episode = "first"
		}
		ctx, leave := context.WithCancel(t.Context())
		_, refused := r.submitCall(ctx, first)
		require.Nil(t, refused)
		second := ask("second", prompt...)
		c := r.start(t, second)
		_, err := r.runStep(t.Context())
		require.NoError(t, err)
		require.Equal(t, [][]int{{6}}, r.dec.batches, "the second waits")
		leave()
		checkReplay(t, second, r.finish(t, c), 64)
		if named {
			require.Equal(t, 6, r.dec.shared, "what the first had is there")
		} else {
			require.Zero(t, r.dec.shared, "nothing is left of a call without an episode")
		}
	}
}

// The caller of the sequence that another waits for asks again before the next step, so that the sequence runs behind the other:
// neither waits for the other for ever.
func TestASampleWhoseCallerAsksAgainIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newSharingRig(t, smallConfig()) // a budget of 6
	prompt := make([]int32, 20)
	first, second := ask("first", prompt...), ask("second", prompt...)
	ctx, leave := context.WithCancel(t.Context())
	_, refused := r.submitCall(ctx, first)
	require.Nil(t, refused)
	c := r.start(t, second)
	_, err := r.runStep(t.Context())
	require.NoError(t, err)
	require.Equal(t, [][]int{{6}}, r.dec.batches, "the second waits")
	leave()
	again := r.start(t, first)
	checkReplay(t, second, r.finish(t, c), 64)
	checkReplay(t, first, r.finish(t, again), 64)
}

// What older weights computed is not given to new calls, though running ones keep it.
func TestWeightsPutAnEndToSharing(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Swap = SwapKeep
	r := newSharingRig(t, cfg)
	prompt := make([]int32, 12)
	r.finish(t, r.start(t, ask("old", prompt...)))
	_, err := r.offer(1)
	require.NoError(t, err)
	req := ask("new", prompt...)
	checkReplay(t, req, r.finish(t, r.start(t, req)), 64)
	require.Zero(t, r.dec.shared)
	again := ask("again", prompt...)
	checkReplay(t, again, r.finish(t, r.start(t, again)), 64)
	require.Equal(t, 11, r.dec.shared)
}
