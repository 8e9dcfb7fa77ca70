package consumers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

func TestSwapModes(t *testing.T) {
	t.Parallel()
	// A call of 6 tokens from 2 is running, with 2 sampled; another episode of 4 is idle; a third call waits or comes.
	for _, test := range []struct {
		mode     SwapMode
		versions []int32
		extended int // by the running call after the swap
		idle     int // caches left
	}{
		{SwapKeep, []int32{0, 0, 1, 1, 1, 1}, 4, 2},
		{SwapRecompute, []int32{0, 0, 1, 1, 1, 1}, 2 + 2 + 3, 1},
		{SwapDrain, []int32{0, 0, 0, 0, 0, 0}, 4, 0},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			t.Parallel()
			cfg := smallConfig()
			cfg.Swap = test.mode
			r := newReady(t, cfg, test.mode == SwapKeep)
			r.finish(t, r.start(t, ask("idle", 1, 2, 3, 4)))
			req := ask("a", 1, 2)
			c := r.start(t, req)
			for range 2 {
				_, err := r.runStep(t.Context())
				require.NoError(t, err)
			}
			before := r.dec.extended
			sw, err := r.offer(1)
			require.NoError(t, err)
			got := r.finish(t, c)
			require.Equal(t, test.versions, []int32(got.Versions))
			checkReplay(t, req, got, 64)
			require.Equal(t, test.extended, r.dec.extended-before)

			later := ask("b", 5, 6)
			after := r.finish(t, r.start(t, later))
			require.Equal(t, []int32{1, 1, 1, 1, 1, 1}, []int32(after.Versions))
			checkReplay(t, later, after, 64)
			require.NoError(t, <-sw.done)
			require.Len(t, r.sched.idle, test.idle+1)
		})
	}
}

func TestDrainHoldsNewCallsBack(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Swap = SwapDrain
	r := newReady(t, cfg, false)
	a := r.start(t, ask("a", 1))
	_, err := r.runStep(t.Context())
	require.NoError(t, err)
	_, err = r.offer(1)
	require.NoError(t, err)
	b := r.start(t, ask("b", 2))
	require.Equal(t, []int32{0, 0, 0, 0, 0, 0}, []int32(r.finish(t, a).Versions))
	require.Equal(t, []int32{1, 1, 1, 1, 1, 1}, []int32(r.finish(t, b).Versions))
}

func TestBadWeightsLeaveTheOldInUse(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	for _, test := range []struct {
		name, error string
		change      func(*Snapshot)
	}{
		{"config", "bad weights: the model configuration is", func(s *Snapshot) { s.Config.NumLayers = 2 }},
		{"name", `bad weights: tensor "other" is not one of the model's`, func(s *Snapshot) { s.Weights.Tensors[0].Name = "other" }},
		{"shape", `bad weights: tensor "version" has shape [2] where the model's has [1]`, func(s *Snapshot) { s.Weights.Tensors[0].Shape = []int{2} }},
		{"count", "bad weights: 0 tensors where the model has 1", func(s *Snapshot) { s.Weights.Tensors = nil }},
		{"version", "bad weights: the version is out of range", func(s *Snapshot) { s.Version = -1 }},
	} {
		s := fakeSnapshot(1)
		test.change(&s)
		_, err := r.prepareSwap(t.Context(), s)
		require.ErrorIs(t, err, ErrBadWeights, test.name)
		require.ErrorContains(t, err, test.error, test.name)
	}
	r.dec.refuse = gpu.ErrMismatch
	_, err := r.offer(1)
	require.ErrorIs(t, err, ErrBadWeights, "before any pause")
	_, err = r.runStep(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(0), r.Version())
	req := ask("a", 1, 2)
	got := r.finish(t, r.start(t, req))
	require.Equal(t, []int32{0, 0, 0, 0, 0, 0}, []int32(got.Versions))
	checkReplay(t, req, got, 64)
}

// A value head is the trainer's: versions with a value head and without are of the same model.
func TestAValueHeadIsNoPartOfWhatIsSampledFrom(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	headed := fakeSnapshot(1)
	headed.Config, headed.Weights = gpu.WithValueHead(headed.Config, headed.Weights, true)
	for _, s := range []Snapshot{headed, fakeSnapshot(2)} {
		_, err := r.prepareSwap(t.Context(), s)
		require.NoError(t, err)
	}
	require.Len(t, headed.Weights.Tensors, 2, "the caller's stay as they are")
}

// Invariant: generation goes on while a version is prepared.
func TestInvariantGenerationGoesOnWhileAVersionIsPrepared(t *testing.T) {
	t.Parallel()
	for _, mode := range []SwapMode{SwapKeep, SwapRecompute, SwapDrain} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cfg := smallConfig()
			cfg.Swap = mode
			r := newReady(t, cfg, false)
			runBatcher(t, r)
			r.dec.hold = make(chan struct{})
			swapped := make(chan error, 1)
			go func() {
				_, err := r.Swap(t.Context(), fakeSnapshot(1))
				swapped <- err
			}()
			for i := range 3 {
				got, err := gather(t.Context(), r, ask(string(rune('a'+i)), 1, 2))
				require.NoError(t, err)
				require.Equal(t, []int32{0, 0, 0, 0, 0, 0}, []int32(got.Versions), "not in use before it is ready")
			}
			close(r.dec.hold)
			require.NoError(t, <-swapped)
			got, err := gather(t.Context(), r, ask("z", 1, 2))
			require.NoError(t, err)
			require.Equal(t, []int32{1, 1, 1, 1, 1, 1}, []int32(got.Versions))
		})
	}
}
