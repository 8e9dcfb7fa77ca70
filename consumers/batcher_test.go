package consumers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/schemas"
)

// checkReplay compares what a call returned with a naive generator that runs it alone.
func checkReplay(tb require.TestingT, req *schemas.GenerateRequest, got *schemas.GenerateChunk, maxLen int) {
	want := replay(req, got.Versions, maxLen)
	require.Equal(tb, want.Tokens, got.Tokens, "tokens")
	require.Equal(tb, want.Logprobs, got.Logprobs, "log-probabilities")
	require.Len(tb, []int32(got.Versions), len(got.Tokens))
	if got.Done && got.Stop != schemas.GenerateError {
		require.Equal(tb, want.Stop, got.Stop)
	}
	for i := 1; i < len(got.Versions); i++ {
		require.LessOrEqual(tb, got.Versions[i-1], got.Versions[i], "versions only grow")
	}
}

// live is a call in the property test and the contract it was given.
type live struct {
	c      *call
	req    *schemas.GenerateRequest
	cancel context.CancelFunc
}

// Invariant: a call's tokens are those that a naive one-at-a-time generator samples, whatever else runs, is
// cancelled, evicted, forgotten or swapped meanwhile.
func TestInvariantTokensAreThoseOfANaiveGenerator(t *testing.T) {
	t.Parallel()
	for _, mode := range []SwapMode{SwapKeep, SwapRecompute, SwapDrain} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { interleave(t, mode) })
		})
	}
}

func interleave(t *rapid.T, mode SwapMode) {
	cfg := DefaultConfig()
	cfg.Swap = mode
	cfg.Slots = rapid.IntRange(1, 4).Draw(t, "slots")
	cfg.MaxRunning = rapid.IntRange(0, cfg.Slots).Draw(t, "max running")
	cfg.StepTokenBudget = cfg.Slots + rapid.IntRange(0, 6).Draw(t, "budget")
	cfg.ChunkTokens = rapid.IntRange(1, 4).Draw(t, "chunk")
	cfg.MaxTokens = rapid.IntRange(8, 24).Draw(t, "max tokens")
	cfg.Queue = 4
	r := newRig(cfg, mode == SwapKeep)
	r.shares = rapid.Bool().Draw(t, "shares")
	ctx := context.Background()
	var version int64
	contexts := map[string][]int32{}
	var calls []live
	var swaps []*swap
	_, err := r.offer(0)
	require.NoError(t, err)

	step := func() bool {
		busy, err := r.runStep(ctx)
		require.NoError(t, err)
		require.Empty(t, r.dec.faults)
		if n := len(r.dec.batches); busy {
			var total int
			for _, size := range r.dec.batches[n-1] {
				total += size
			}
			require.LessOrEqual(t, total, cfg.StepTokenBudget)
			require.LessOrEqual(t, len(r.dec.batches[n-1]), cfg.mostRunning())
		}
		require.LessOrEqual(t, len(r.dec.slots), cfg.Slots)
		for seq := range r.sched.idle {
			require.Len(t, r.dec.slots[seq.slot], seq.cached)
		}
		return busy
	}
	settle := func() {
		calls = deleteFunc(calls, func(l live) bool {
			if !l.c.out.Done {
				return false
			}
			got := l.c.takeChunk()
			checkReplay(t, l.req, got, cfg.MaxTokens)
			for _, v := range got.Versions {
				require.GreaterOrEqual(t, int64(v), l.req.MinVersion)
			}
			if mode == SwapDrain && len(got.Versions) > 0 {
				require.Equal(t, got.Versions[0], got.Versions[len(got.Versions)-1], "a call has one version")
			}
			// The agent goes on from what was sampled, or rewrites its context.
			next := append(append([]int32(nil), l.req.Tokens...), got.Tokens...)
			contexts[l.req.Episode] = next
			l.cancel()
			return true
		})
	}
	step()
	r.sched.least = 1
	t.Repeat(map[string]func(*rapid.T){
		"submit": func(t *rapid.T) {
			episode := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "episode")
			// An episode may go on from another's context, as the samples of one prompt do.
			from := rapid.SampledFrom([]string{episode, "a", "b"}).Draw(t, "from")
			tokens := append([]int32(nil), contexts[from]...)
			if rapid.Bool().Draw(t, "rewrite") {
				tokens = tokens[:rapid.IntRange(0, len(tokens)).Draw(t, "cut")]
			}
			tokens = append(tokens, rapid.SliceOfN(rapid.Int32Range(0, fakeVocab-1), 1, 9).Draw(t, "observation")...)
			req := &schemas.GenerateRequest{
				Episode: episode, Tokens: tokens, MaxTokens: rapid.IntRange(1, 9).Draw(t, "max"),
				Temperature: rapid.SampledFrom([]float32{0, 0.7, 1}).Draw(t, "temperature"),
				Seed:        rapid.Uint64Range(0, 3).Draw(t, "seed"), Last: rapid.Bool().Draw(t, "last"),
				StopTokens: rapid.SliceOfN(rapid.Int32Range(0, fakeVocab-1), 0, 2).Draw(t, "stop"),
				MinVersion: max(0, version+rapid.Int64Range(-2, 1).Draw(t, "ahead")),
			}
			callCtx, cancel := context.WithCancel(ctx)
			c, refused := r.submitCall(callCtx, req)
			if refused != nil {
				cancel()
				full := refused.Stop == schemas.GenerateError && refused.Retry && len(r.waiting) == cfg.Queue+r.free
				long := refused.Stop == schemas.GenerateLength && len(tokens) >= cfg.MaxTokens
				require.True(t, full || long, "%+v", refused)
				if long {
					delete(contexts, episode)
				}
				return
			}
			calls = append(calls, live{c, req, cancel})
		},
		"cancel": func(t *rapid.T) {
			if len(calls) == 0 {
				t.Skip("no call")
			}
			i := rapid.IntRange(0, len(calls)-1).Draw(t, "which")
			calls[i].cancel()
			step()
			// What it sampled before is right too.
			got := calls[i].c.takeChunk()
			checkReplay(t, calls[i].req, got, cfg.MaxTokens)
			calls = append(calls[:i], calls[i+1:]...)
			settle()
		},
		"step":   func(*rapid.T) { step(); settle() },
		"forget": func(t *rapid.T) { r.Forget(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "episode")) },
		"swap": func(t *rapid.T) {
			if r.pending != nil {
				t.Skip("one is pending")
			}
			version++
			sw, err := r.offer(version)
			require.NoError(t, err)
			swaps = append(swaps, sw)
		},
	})
	for r.pending != nil {
		step()
		settle()
	}
	// Some calls may want a version that was not there yet.
	version++
	last, err := r.offer(version)
	require.NoError(t, err)
	swaps = append(swaps, last)
	for step() || len(calls) > 0 {
		settle()
	}
	step()
	require.Equal(t, version, r.Version(), "the last version came into use")
	for _, sw := range swaps {
		require.NoError(t, <-sw.done)
	}
	require.Empty(t, r.waiting)
	require.Empty(t, r.sched.running)
	require.Len(t, r.dec.slots, len(r.sched.idle), "no slot leaks")
}

func deleteFunc(calls []live, f func(live) bool) []live {
	var kept []live
	for _, l := range calls {
		if !f(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

// Invariant: a long prompt is taken in pieces beside the sequences that sample, which gain a token every step.
func TestChunks(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), true) // chunks of 3
	req := ask("a", 1, 2)
	req.MaxTokens = 8
	c := r.start(t, req)
	pending := func() int { return len(c.out.Tokens) }
	step := func() {
		_, err := r.runStep(t.Context())
		require.NoError(t, err)
	}
	step()
	step()
	require.Zero(t, pending())
	step()
	require.Equal(t, 3, pending())
	step()
	_, err := r.offer(1)
	require.NoError(t, err)
	step()
	require.Equal(t, 4, pending(), "what the old version sampled is sent when the version changes")
	got := r.finish(t, c)
	require.Equal(t, []int32{0, 0, 0, 0, 1, 1, 1, 1}, []int32(got.Versions))
	checkReplay(t, req, got, 64)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.MaxRunning, cfg.Queue, cfg.MaxTokens = 1, 2, 10
	empty := newRig(cfg, false)
	_, refused := empty.submitCall(t.Context(), ask("a", 1))
	require.Equal(t, "no weights yet", refused.Error)
	require.True(t, refused.Retry && refused.Busy)

	r := newReady(t, cfg, false)
	for _, test := range []struct {
		name  string
		req   schemas.GenerateRequest
		error string
	}{
		{"no tokens", schemas.GenerateRequest{MaxTokens: 1}, "bad request: no tokens"},
		{"no max", schemas.GenerateRequest{Tokens: []int32{1}}, "bad request: max_tokens is 0: must be positive"},
		{"vocabulary", schemas.GenerateRequest{Tokens: []int32{1, fakeVocab}, MaxTokens: 1}, "bad request: token 1 is 23: the vocabulary has 23"},
		{"negative token", schemas.GenerateRequest{Tokens: []int32{-1}, MaxTokens: 1}, "bad request: token 0 is -1: the vocabulary has 23"},
		{"temperature", schemas.GenerateRequest{Tokens: []int32{1}, MaxTokens: 1, Temperature: -1}, "bad request: temperature is -1: must be 0, or between 0.001 and 1000"},
	} {
		_, refused := r.submitCall(t.Context(), &test.req)
		require.Equal(t, schemas.GenerateError, refused.Stop, test.name)
		require.Equal(t, test.error, refused.Error, test.name)
		require.False(t, refused.Retry, test.name)
	}
	_, refused = r.submitCall(t.Context(), ask("a", make([]int32, 10)...))
	require.Equal(t, schemas.GenerateLength, refused.Stop, "no room for another token")

	gone, leave := context.WithCancel(t.Context())
	_, refused = r.submitCall(gone, ask("a", 1)) // one that can run at once, and two that wait
	require.Nil(t, refused)
	r.start(t, ask("b", 1))
	r.start(t, ask("c", 1))
	_, refused = r.submitCall(t.Context(), ask("d", 1))
	require.Equal(t, "2 calls are waiting already", refused.Error)
	require.True(t, refused.Retry && refused.Busy)
	leave()
	r.start(t, ask("d", 1)) // takes the place of the one that left
}

func TestLogitsThatAreNotFiniteEndTheCall(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	r.dec.poison = true
	got := r.finish(t, r.start(t, ask("a", 1)))
	require.Equal(t, "sample token 1 with weights of version 0: logits are not finite", got.Error)
	require.False(t, got.Retry)
	require.Empty(t, r.dec.slots)
	r.dec.poison = false
	req := ask("a", 1)
	checkReplay(t, req, r.finish(t, r.start(t, req)), 64)
}

// runBatcher runs the rig's Batcher until the test ends.
func runBatcher(t *testing.T, r *rig) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { require.NoError(t, stop()) })
	return stop
}

// gather collects the chunks of a call.
func gather(ctx context.Context, g openai.Generator, req *schemas.GenerateRequest) (*schemas.GenerateChunk, error) {
	all := &schemas.GenerateChunk{}
	err := g.Generate(ctx, req, func(c *schemas.GenerateChunk) error {
		if all.Done {
			return errors.New("a chunk after the last")
		}
		all.Tokens = append(all.Tokens, c.Tokens...)
		all.Logprobs = append(all.Logprobs, c.Logprobs...)
		all.Versions = append(all.Versions, c.Versions...)
		all.Done, all.Stop, all.Error, all.Retry = c.Done, c.Stop, c.Error, c.Retry
		return nil
	})
	return all, err
}

func TestConcurrentCallsSwapsAndCancels(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Swap, cfg.Queue = SwapRecompute, 100
	r := newRig(cfg, false)
	stop := runBatcher(t, r)
	_, err := r.Swap(t.Context(), fakeSnapshot(0))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				req := ask(string(rune('a'+worker)), int32(worker), int32(i%3), 1)
				req.Seed = uint64(i)
				if i%5 == 4 {
					cancel()
				}
				got, err := gather(ctx, r, req)
				if i%5 != 4 {
					if err != nil || !got.Done {
						t.Errorf("call failed: %v %+v", err, got)
					}
				}
				checkReplay(t, req, got, 64)
				cancel()
			}
		})
	}
	for version := range int64(20) {
		_, err := r.Swap(t.Context(), fakeSnapshot(version+1))
		require.NoError(t, err)
	}
	wg.Wait()
	require.NoError(t, stop())
	require.Empty(t, r.dec.faults)
	_, err = r.Swap(t.Context(), fakeSnapshot(99))
	require.ErrorIs(t, err, ErrStopped)
	got, err := gather(t.Context(), r, ask("a", 1))
	require.NoError(t, err)
	require.True(t, got.Retry)
}

func TestACallWaitsForTheVersionItWants(t *testing.T) {
	t.Parallel()
	r := newRig(smallConfig(), false)
	runBatcher(t, r)
	_, err := r.Swap(t.Context(), fakeSnapshot(3))
	require.NoError(t, err)
	wants := ask("a", 1)
	wants.MinVersion = 4
	got := make(chan *schemas.GenerateChunk, 1)
	go func() {
		all, _ := gather(t.Context(), r, wants)
		got <- all
	}()
	// One that does not mind is served meanwhile.
	other, err := gather(t.Context(), r, ask("b", 1))
	require.NoError(t, err)
	require.EqualValues(t, 3, other.Versions[0])
	_, err = r.Swap(t.Context(), fakeSnapshot(4))
	require.NoError(t, err)
	all := <-got
	require.NotEmpty(t, all.Versions)
	require.EqualValues(t, 4, all.Versions[0])

	// Where the weights do not come, another engine may have them.
	r.versionWait = 1
	wants.MinVersion = 5
	refused, err := gather(t.Context(), r, wants)
	require.NoError(t, err)
	require.True(t, refused.Retry)
	require.Equal(t, "has version 4 and waited 1ns for version 5", refused.Error)
}

// Weights that come when the engine is busy do not leave a gap in the chunks of who waited for them too long.
func TestACallWhoseWeightsCameIsNotGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReady(t, smallConfig(), false)
		wants := ask("a", 1)
		wants.MinVersion = 1
		done := make(chan error, 1)
		go func() {
			all, err := gather(t.Context(), r, wants)
			if err == nil && len(all.Tokens) != wants.MaxTokens {
				err = errors.New(all.Error)
			}
			done <- err
		}()
		synctest.Wait()
		_, err := r.offer(1)
		require.NoError(t, err)
		r.applySwap() // and no step
		<-time.After(2 * maxVersionWait)
		synctest.Wait()
		for busy := true; busy; {
			busy, err = r.runStep(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, <-done)
	})
}

// A call that is refused has left the queue.
func TestACallThatIsGivenUpLeavesTheQueue(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	r.versionWait = 1
	wants := ask("a", 1)
	wants.MinVersion = 1
	got, err := gather(t.Context(), r, wants)
	require.NoError(t, err)
	require.True(t, got.Retry)
	require.Empty(t, r.waiting)
}

func TestABrokenDecoderEndsEveryCallWithRetry(t *testing.T) {
	t.Parallel()
	r := newReady(t, smallConfig(), false)
	r.dec.broken = errors.New("the device is gone")
	running := r.start(t, ask("a", 1))
	err := r.Run(t.Context())
	require.EqualError(t, err, "extend 1 sequences: the device is gone")
	got := running.takeChunk()
	require.True(t, got.Done && got.Retry)
	require.Equal(t, err.Error(), got.Error)
}

func TestGenerateEndsWhenEmitFails(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.Swap = SwapDrain
	r := newRig(cfg, false)
	runBatcher(t, r)
	_, err := r.Swap(t.Context(), fakeSnapshot(0))
	require.NoError(t, err)
	gone := errors.New("the caller is gone")
	req := ask("a", 1)
	req.MaxTokens = 60
	err = r.Generate(t.Context(), req, func(*schemas.GenerateChunk) error { return gone })
	require.ErrorIs(t, err, gone)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = r.Swap(ctx, fakeSnapshot(1))
	require.NoError(t, err, "nothing is left running")
}

// nothing is a decoder that does no work, so that what remains is the engine's own.
// BenchmarkStep is a step of 64 sequences over a decoder that does nothing and a vocabulary of 16: scheduling,
// bookkeeping and metrics, with little sampling.

func TestLoadSaysHowBusyTheBatcherIs(t *testing.T) {
	t.Parallel()
	cfg := smallConfig()
	cfg.MaxRunning = 1
	r := newReady(t, cfg, false)
	require.Zero(t, r.Load())
	r.finish(t, r.start(t, ask("a", 1, 2, 3)))
	again := ask("a", 1, 2, 3, 4)
	again.MaxTokens = 2
	c := r.start(t, again)
	r.start(t, ask("b", 1))
	_, err := r.runStep(t.Context())
	require.NoError(t, err)
	require.Equal(t, Load{Running: 1, Waiting: 1, CacheUse: 0.25, PrefixHits: 3}, r.Load())
	r.finish(t, c)
	_, err = r.runStep(t.Context())
	require.NoError(t, err)
	require.Equal(t, Load{Running: 1, Idle: 1, CacheUse: 0.5, PrefixHits: 3}, r.Load())
}

// Newcomer's section 7: who reads along has the first token when it is sampled, not when a chunk is full.
func TestAStreamGivesEachTokenAsItIsSampled(t *testing.T) {
	t.Parallel()
	first := func(chunk int) int {
		r := newReady(t, smallConfig(), false)
		c, refused := r.submitCallInChunks(t.Context(), ask("a", 1, 2), chunk)
		require.Nil(t, refused)
		for len(c.notify) == 0 {
			_, err := r.runStep(t.Context())
			require.NoError(t, err)
		}
		return len(c.takeChunk().Tokens)
	}
	require.Equal(t, 1, first(1))
	require.Equal(t, 3, first(smallConfig().ChunkTokens))
}
