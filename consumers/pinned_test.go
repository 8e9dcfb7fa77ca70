package consumers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
)

// countedSampler knows how many of its kind run.
type countedSampler struct {
	*Batcher
	running, most *atomic.Int64
}

func (c countedSampler) Run(ctx context.Context) error {
	n := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	return c.Batcher.Run(ctx)
}

// pinnedRig is a Pinned over the demonstration's model, of which versions 0 to 2 are stored.
type pinnedRig struct {
	*Pinned
	weights       map[int32]Snapshot
	running, most atomic.Int64
	loads         atomic.Int64
}

// Version is none, so that gather takes it for a Generator.
func (r *pinnedRig) Version() int64 { return -1 }

var errGone = errors.New("the version is no longer stored")

func newPinnedRig(tb testing.TB) *pinnedRig {
	tb.Helper()
	r := &pinnedRig{weights: map[int32]Snapshot{}}
	for version := range int32(3) {
		r.weights[version] = nativeSnapshot(tb, int64(version))
	}
	cfg := DefaultConfig()
	cfg.Name, cfg.Slots, cfg.StepTokenBudget = "engine", 6, 16
	r.Pinned = NewPinned(PinnedOptions{
		Make: func() Sampler {
			return countedSampler{NewBatcher(cfg, native.Backend{}.NewDecoder, nil), &r.running, &r.most}
		},
		Load: func(ctx context.Context, version int64) (Snapshot, error) {
			r.loads.Add(1)
			s, ok := r.weights[int32(version)]
			if !ok {
				return s, errGone
			}
			return s, ctx.Err()
		},
	})
	tb.Cleanup(r.dropVersion)
	return r
}

// Invariant: a pinned call is sampled by the version that it names, greedily too, whatever other versions are asked for
// meanwhile, and no two versions are held at a time.
func TestInvariantAPinnedCallIsSampledByTheVersionThatItNames(t *testing.T) {
	t.Parallel()
	r := newPinnedRig(t)
	run := streamtest.Open(t, streamtest.Conn(t))
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, run, "engine-a") }()
	client := generate.NewClient(generate.Pinned(run), generate.ClientOptions{})
	defer client.Close()

	var calls sync.WaitGroup
	for i := range 24 {
		calls.Go(func() {
			version := int64(i % 3)
			req := &schemas.GenerateRequest{
				Run: run.Name(), Episode: fmt.Sprintf("e%d", i), Tokens: []int32{1, int32(7 + i), int32(31 * i % 1562)}, MaxTokens: 6,
				Temperature: float32(i % 2), Seed: uint64(i), MinVersion: version, Pinned: true,
			}
			got, err := client.Generate(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			versions := make([]int32, len(got.Tokens))
			for k := range versions {
				versions[k] = int32(version)
			}
			tokens, logprobs := alone(t, r.weights, req, versions)
			if fmt.Sprint(got.Versions, got.Tokens, got.Logprobs) != fmt.Sprint(versions, tokens, logprobs) {
				t.Errorf("version %d: %v by %v instead of %v", version, got.Tokens, got.Versions, tokens)
			}
		})
	}
	calls.Wait()
	require.Equal(t, int64(1), r.most.Load())
	stop()
	require.NoError(t, <-served)
	require.Zero(t, r.running.Load(), "nothing is held once nobody serves")
}

func TestAVersionThatIsGoneRefusesItsCalls(t *testing.T) {
	t.Parallel()
	r := newPinnedRig(t)
	req := &schemas.GenerateRequest{Episode: "e", Tokens: []int32{1}, MaxTokens: 2, MinVersion: 9, Pinned: true}
	got, err := gather(t.Context(), r, req)
	require.NoError(t, err)
	require.True(t, got.Done)
	require.Equal(t, schemas.GenerateError, got.Stop)
	require.False(t, got.Retry, "no other engine has it either")
	require.Contains(t, got.Error, "version 9: the version is no longer stored")

	req.MinVersion = 1
	got, err = gather(t.Context(), r, req)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 1}, []int32(got.Versions), "the next version is not worse off")
}

// A call that waits for another version goes before calls that come later of the version in use.
func TestWhoAsksForAnotherVersionIsNotHeldUpForEver(t *testing.T) {
	t.Parallel()
	r := newPinnedRig(t)
	first, err := r.holdVersion(t.Context(), 0)
	require.NoError(t, err)
	other := make(chan *pinnedVersion, 1)
	go func() {
		held, err := r.holdVersion(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		other <- held
	}()
	for r.users.TryAcquire(1) { // until the other waits
		r.users.Release(1)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.holdVersion(late, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(0), first.version)
	r.users.Release(1)
	require.Equal(t, int64(1), (<-other).version)
}

func TestWeightsThatNobodyAsksForAreLetGo(t *testing.T) {
	t.Parallel()
	r := newPinnedRig(t)
	req := &schemas.GenerateRequest{Episode: "e", Tokens: []int32{1}, MaxTokens: 2, MinVersion: 2, Pinned: true}
	_, err := gather(t.Context(), r, req)
	require.NoError(t, err)
	now := time.Now()
	r.dropIdle(now)
	require.Equal(t, int64(1), r.running.Load(), "they were asked for just now")
	r.dropIdle(now.Add(2 * pinnedIdle))
	require.Zero(t, r.running.Load())
	_, err = gather(t.Context(), r, req)
	require.NoError(t, err)
	require.Equal(t, int64(2), r.loads.Load())
}

// An engine that does not serve pinned calls never gets one, and one that is asked at the wrong subject refuses.
func TestPinnedCallsAndOthersDoNotMix(t *testing.T) {
	t.Parallel()
	r := newPinnedRig(t)
	run := streamtest.Open(t, streamtest.Conn(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- generate.Serve(ctx, run, "engine-a", r.Generate) }()

	pinned := &schemas.GenerateRequest{Episode: "e", Tokens: []int32{1}, MaxTokens: 2, Pinned: true}
	ending := make(chan struct{})
	close(ending)
	apart := generate.NewClient(generate.Pinned(run), generate.ClientOptions{Ending: ending})
	defer apart.Close()
	_, err := apart.Generate(t.Context(), pinned)
	require.ErrorIs(t, err, generate.ErrUnserved)

	shared := generate.NewClient(run, generate.ClientOptions{})
	defer shared.Close()
	_, err = shared.Generate(t.Context(), pinned)
	require.ErrorIs(t, err, generate.ErrFailed)
	require.ErrorContains(t, err, "pinned is true")
	require.Zero(t, r.loads.Load())
	stop()
	require.NoError(t, <-served)
}
