// Package samplertest is the contract that every [consumers.Sampler] keeps, as a test suite: for the Batcher and for
// inference servers, pass it.
//
//	func TestContract(t *testing.T) {
//		samplertest.Run(t, func(t *testing.T) *samplertest.Rig { ... })
//	}
package samplertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// Rig is a Sampler to be tested, of which nothing was called yet.
type Rig struct {
	Sampler consumers.Sampler
	// Config is the model's: a vocabulary of at least 8 tokens, and room for at least 64 positions.
	Config gpu.Config
	// Snapshot is a version, with weights of its own; the weights are such that no token is sampled with certainty.
	Snapshot func(version int64) consumers.Snapshot
	// Logprobs are the log-probabilities of tokens[from:] under a version's weights, by another way of computing them.
	Logprobs func(version int64, tokens []int32, from int, temperature float32) []float32
	// Reserved is how many positions at the end of the longest context are never sampled.
	Reserved int
	// Reproduces reports that a draw is fixed by the request's seed and the token's position.
	Reproduces bool
}

// mostPositions is how long a context may become.
func (r *Rig) mostPositions() int { return r.Config.MaxPositions - r.Reserved }

// tolerance, in nats, is for the arithmetic of two ways.
const tolerance = 1e-3

// Run tests a Sampler that open makes anew for each test.
func Run(t *testing.T, open func(t *testing.T) *Rig) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *rig){
		"nothing is sampled before the first weights":          testCallsBeforeWeights,
		"each token has its log-probability and its version":   testLogprobs,
		"a call ends at a stop token or at its length":         testEnds,
		"what no server can serve is refused":                  testRefusals,
		"a call waits for the version that it asks for":        testMinVersion,
		"calls go on through a swap":                           testSwap,
		"a bad snapshot leaves the version in use":             testBadSnapshot,
		"a caller's end ends the call":                         testCancel,
		"the end of Run ends the calls that are left":          testStop,
		"the same seed draws the same tokens, where it is so":  testSeed,
		"other seeds draw other tokens, in the right shares":   testDraws,
		"calls side by side are as those that are made alone":  testTogether,
		"what is told of the load is of now, and empty at end": testLoad,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rig{Rig: open(t)}
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			r.ended = make(chan error, 1)
			go func() { r.ended <- r.Sampler.Run(ctx) }()
			r.stop = func() error {
				cancel()
				if !r.stopped {
					r.stopped = true
					r.how = <-r.ended
				}
				return r.how
			}
			t.Cleanup(func() { require.NoError(t, r.stop()) })
			test(t, r)
		})
	}
}

// rig is a Rig whose Sampler runs.
type rig struct {
	*Rig
	ended   chan error
	stop    func() error
	stopped bool
	how     error
}

func (r *rig) swapTo(t *testing.T, version int64) {
	t.Helper()
	_, err := r.Sampler.Swap(t.Context(), r.Snapshot(version))
	require.NoError(t, err)
	require.Equal(t, version, r.Sampler.Version())
}

// result is all that a call came to.
type result struct {
	tokens   []int32
	logprobs []float32
	versions []int32
	last     schemas.GenerateChunk
	chunks   int
}

// generateWhole makes a call and checks that its chunks fit together.
func (r *rig) generateWhole(ctx context.Context, req *schemas.GenerateRequest) (*result, error) {
	out := &result{}
	err := r.Sampler.Generate(ctx, req, func(c *schemas.GenerateChunk) error {
		if out.last.Done {
			return errors.New("a chunk after the last")
		}
		if len(c.Tokens) != len(c.Logprobs) || len(c.Tokens) != len(c.Versions) {
			return fmt.Errorf("%d tokens, %d log-probabilities, %d versions", len(c.Tokens), len(c.Logprobs), len(c.Versions))
		}
		out.tokens = append(out.tokens, c.Tokens...)
		out.logprobs = append(out.logprobs, c.Logprobs...)
		out.versions = append(out.versions, c.Versions...)
		out.last = *c
		out.chunks++
		return nil
	})
	if err == nil && !out.last.Done {
		err = errors.New("the call returned before its last chunk")
	}
	return out, err
}

func newRequest(episode string, most int, seed uint64) *schemas.GenerateRequest {
	return &schemas.GenerateRequest{Episode: episode, Tokens: schemas.Int32s{1, 2, 3}, MaxTokens: most, Temperature: 1, Seed: seed}
}

// checkNumbers checks a call's numbers against the other way of computing them.
func (r *rig) checkNumbers(t *testing.T, req *schemas.GenerateRequest, got *result, version int64) {
	t.Helper()
	for _, v := range got.versions {
		require.Equal(t, int32(version), v) //nolint:gosec // a test's version
	}
	whole := slices.Concat([]int32(req.Tokens), got.tokens)
	temperature := req.Temperature
	if temperature == 0 {
		temperature = 1
	}
	want := r.Logprobs(version, whole, len(req.Tokens), temperature)
	require.Len(t, got.logprobs, len(want))
	for i := range want {
		require.InDelta(t, want[i], got.logprobs[i], tolerance, "token %d of %v", i, got.tokens)
	}
}

func testCallsBeforeWeights(t *testing.T, r *rig) {
	require.Equal(t, int64(-1), r.Sampler.Version())
	got, err := r.generateWhole(t.Context(), newRequest("a", 4, 1))
	require.NoError(t, err)
	require.Equal(t, schemas.GenerateError, got.last.Stop)
	require.True(t, got.last.Retry && got.last.Busy, "%+v", got.last)
	require.Empty(t, got.tokens)
}

func testLogprobs(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	for i, temperature := range []float32{1, 0.5, 2, 0} {
		req := newRequest(fmt.Sprint("t", i), 8, 7)
		req.Temperature = temperature
		got, err := r.generateWhole(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateLength, got.last.Stop, "%+v", got.last)
		require.Len(t, got.tokens, 8)
		r.checkNumbers(t, req, got, 0)
	}
	// Version 1 has other weights.
	r.swapTo(t, 1)
	req := newRequest("later", 8, 7)
	req.MinVersion = 1
	got, err := r.generateWhole(t.Context(), req)
	require.NoError(t, err)
	r.checkNumbers(t, req, got, 1)
	require.NotEqual(t, r.Logprobs(0, slices.Concat([]int32(req.Tokens), got.tokens), 3, 1), got.logprobs)
}

func testEnds(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	free, err := r.generateWhole(t.Context(), newRequest("a", 12, 3))
	require.NoError(t, err)
	require.Len(t, free.tokens, 12)
	// Half of the vocabulary stops: few calls get far.
	stopped := false
	for i := range 8 {
		req := newRequest(fmt.Sprint("s", i), 12, uint64(i)) //nolint:gosec // a small count
		for token := range r.Config.VocabSize / 2 {
			req.StopTokens = append(req.StopTokens, int32(token)) //nolint:gosec // a vocabulary fits
		}
		got, err := r.generateWhole(t.Context(), req)
		require.NoError(t, err)
		for j, token := range got.tokens {
			stops := slices.Contains(req.StopTokens, token)
			require.Equal(t, stops, j == len(got.tokens)-1 && got.last.Stop == schemas.GenerateStopToken, "%v, %s", got.tokens, got.last.Stop)
		}
		stopped = stopped || got.last.Stop == schemas.GenerateStopToken
	}
	require.True(t, stopped)
	// A context that leaves room for a token, and a context that leaves none.
	for left, want := range []int{0, 1} {
		req := newRequest("long", 50, 1)
		for len(req.Tokens) < r.mostPositions()-left {
			req.Tokens = append(req.Tokens, 1)
		}
		got, err := r.generateWhole(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateLength, got.last.Stop, "%+v", got.last)
		require.Len(t, got.tokens, want)
	}
}

func testRefusals(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	for name, change := range map[string]func(*schemas.GenerateRequest){
		"no tokens":       func(q *schemas.GenerateRequest) { q.Tokens = nil },
		"max_tokens is 0": func(q *schemas.GenerateRequest) { q.MaxTokens = 0 },
		"temperature is":  func(q *schemas.GenerateRequest) { q.Temperature = -1 },
		"token 1 is -1":   func(q *schemas.GenerateRequest) { q.Tokens[1] = -1 },
		"the vocabulary has": func(q *schemas.GenerateRequest) {
			q.Tokens[2] = int32(r.Config.VocabSize) //nolint:gosec // a vocabulary fits
		},
	} {
		req := newRequest("a", 4, 1)
		change(req)
		got, err := r.generateWhole(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateError, got.last.Stop)
		require.False(t, got.last.Retry)
		require.Contains(t, got.last.Error, name)
		require.Contains(t, got.last.Error, consumers.ErrBadRequest.Error())
	}
}

func testMinVersion(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	req := newRequest("a", 4, 1)
	req.MinVersion = 1
	type answer struct {
		got *result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		got, err := r.generateWhole(t.Context(), req)
		done <- answer{got, err}
	}()
	// Calls that do not ask for it are served meanwhile.
	other, err := r.generateWhole(t.Context(), newRequest("b", 4, 1))
	require.NoError(t, err)
	r.checkNumbers(t, newRequest("b", 4, 1), other, 0)
	r.swapTo(t, 1)
	a := <-done
	require.NoError(t, a.err)
	require.Len(t, a.got.tokens, 4)
	r.checkNumbers(t, req, a.got, 1)
}

func testSwap(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	const calls, versions = 6, 3
	most := r.mostPositions() - 8
	var group errgroup.Group
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	results := make(chan *result, 1024)
	for i := range calls {
		group.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				got, err := r.generateWhole(t.Context(), newRequest(fmt.Sprintf("c%d-%d", i, n), most, uint64(n))) //nolint:gosec // a small count
				if err != nil {
					return err
				}
				select {
				case results <- got:
				default:
				}
			}
			return nil
		})
	}
	for v := range int64(versions) {
		r.swapTo(t, v+1)
		<-results // something was sampled since
	}
	enough()
	require.NoError(t, group.Wait())
	close(results)
	for got := range results {
		require.Equal(t, schemas.GenerateLength, got.last.Stop, "%+v", got.last)
		require.Len(t, got.tokens, most)
		require.True(t, slices.IsSorted(got.versions), "%v", got.versions)
	}
	// The next call is of the last version alone.
	req := newRequest("after", 8, 1)
	req.MinVersion = versions
	got, err := r.generateWhole(t.Context(), req)
	require.NoError(t, err)
	r.checkNumbers(t, req, got, versions)
}

func testBadSnapshot(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	other := r.Snapshot(1)
	other.Config.NumLayers++
	_, err := r.Sampler.Swap(t.Context(), other)
	require.ErrorIs(t, err, consumers.ErrBadWeights)
	_, err = r.Sampler.Swap(t.Context(), consumers.Snapshot{Version: 1, Config: r.Config})
	require.ErrorIs(t, err, consumers.ErrBadWeights)
	negative := r.Snapshot(1)
	negative.Version = -2
	_, err = r.Sampler.Swap(t.Context(), negative)
	require.ErrorIs(t, err, consumers.ErrBadWeights)
	require.Equal(t, int64(0), r.Sampler.Version())
	req := newRequest("a", 4, 1)
	got, err := r.generateWhole(t.Context(), req)
	require.NoError(t, err)
	r.checkNumbers(t, req, got, 0)
	r.swapTo(t, 1)
}

func testCancel(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	req := newRequest("a", 4, 1)
	req.MinVersion = 99 // it waits for ever
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.generateWhole(ctx, req)
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	// A reader that stops ends the call too.
	full := errors.New("nobody takes it")
	err := r.Sampler.Generate(t.Context(), newRequest("b", 4, 1), func(*schemas.GenerateChunk) error { return full })
	require.ErrorIs(t, err, full)
	got, err := r.generateWhole(t.Context(), newRequest("c", 4, 1))
	require.NoError(t, err)
	r.checkNumbers(t, newRequest("c", 4, 1), got, 0)
}

func testStop(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	req := newRequest("a", 4, 1)
	req.MinVersion = 99
	type answer struct {
		got *result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		got, err := r.generateWhole(t.Context(), req)
		done <- answer{got, err}
	}()
	require.NoError(t, r.stop())
	a := <-done
	require.NoError(t, a.err)
	require.Equal(t, schemas.GenerateError, a.got.last.Stop)
	require.True(t, a.got.last.Retry, "%+v", a.got.last)
	_, err := r.Sampler.Swap(t.Context(), r.Snapshot(1))
	require.ErrorIs(t, err, consumers.ErrStopped)
}

func testSeed(t *testing.T, r *rig) {
	if !r.Reproduces {
		return // an inference server does not: testDraws holds its own promise
	}
	r.swapTo(t, 0)
	whole, err := r.generateWhole(t.Context(), newRequest("a", 12, 9))
	require.NoError(t, err)
	// A call that goes on elsewhere after five tokens.
	rest := newRequest("b", 7, 9)
	rest.Tokens = append(rest.Tokens, whole.tokens[:5]...)
	got, err := r.generateWhole(t.Context(), rest)
	require.NoError(t, err)
	require.Equal(t, whole.tokens[5:], got.tokens)
}

// testDraws compares how often tokens are drawn with how likely they say they are.
func testDraws(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	const n = 400
	counts, probability := map[int32]float64{}, map[int32]float64{}
	var group errgroup.Group
	group.SetLimit(8)
	results := make([]*result, n)
	for i := range n {
		group.Go(func() (err error) {
			results[i], err = r.generateWhole(t.Context(), newRequest(fmt.Sprint("d", i), 1, uint64(i)*7919+1)) //nolint:gosec // a small count
			return err
		})
	}
	require.NoError(t, group.Wait())
	for _, got := range results {
		require.Len(t, got.tokens, 1, "%+v", got.last)
		counts[got.tokens[0]]++
		probability[got.tokens[0]] = float64(r.Logprobs(0, []int32{1, 2, 3, got.tokens[0]}, 3, 1)[0])
	}
	require.Greater(t, len(counts), 1, "every seed draws the same token")
	for token, count := range counts {
		p := math.Exp(probability[token])
		// Eight standard deviations, and a single draw of a token that is hardly ever drawn.
		require.InDelta(t, n*p, count, 8*math.Sqrt(n*p*(1-p))+1, "token %d of probability %.4f", token, p)
	}
}

func testTogether(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	var group errgroup.Group
	results := make([]*result, 16)
	request := func(i int) *schemas.GenerateRequest {
		req := newRequest(fmt.Sprint("e", i), 5+i%7, uint64(i)) //nolint:gosec // a small count
		for range i % 4 {
			req.Tokens = append(req.Tokens, int32(i%5)) //nolint:gosec // a small count
		}
		return req
	}
	for i := range results {
		group.Go(func() (err error) {
			results[i], err = r.generateWhole(t.Context(), request(i))
			return err
		})
	}
	require.NoError(t, group.Wait())
	for i, got := range results {
		require.Len(t, got.tokens, 5+i%7)
		r.checkNumbers(t, request(i), got, 0)
	}
}

func testLoad(t *testing.T, r *rig) {
	r.swapTo(t, 0)
	_, err := r.generateWhole(t.Context(), newRequest("a", 4, 1))
	require.NoError(t, err)
	if f, ok := r.Sampler.(consumers.Forgetter); ok {
		f.Forget("a")
	}
	// A call for a version that is not there waits, and reports that.
	req := newRequest("b", 4, 1)
	req.MinVersion = 1
	done := make(chan error, 1)
	go func() {
		_, err := r.generateWhole(t.Context(), req)
		done <- err
	}()
	for r.Sampler.Load().Waiting == 0 {
		got, err := r.generateWhole(t.Context(), newRequest("c", 1, 1)) // something to do meanwhile
		require.NoError(t, err)
		require.Len(t, got.tokens, 1)
	}
	r.swapTo(t, 1)
	require.NoError(t, <-done)
	require.Zero(t, r.Sampler.Load().Waiting)
}
