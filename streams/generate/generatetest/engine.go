// Package generatetest has a stand-in of an inference engine for tests of an engine's surroundings: its tokens follow from the request,
// and it counts the tokens that it sampled again.
//
//	engine := &generatetest.Engine{First: 5, Kinds: 20, Pace: 40 * time.Millisecond, Version: 3}
//	err := generate.Serve(ctx, run, "e1", engine.ServeCall) // or as a policy, without a broker: engine.Generate
package generatetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// Engine draws each token from the seed, the token's position and the token before it, so that a call which goes on behind tokens of an
// earlier call is given the tokens that the earlier call would have been given. It is safe for concurrent use.
type Engine struct {
	// First is the lowest token, Kinds is how many there are, > 0.
	First int32
	Kinds uint64
	// Pace is the time of a token; 0 takes none.
	Pace time.Duration
	// Version is the policy version of every token.
	Version int32

	mu      sync.Mutex
	sampled map[place]int
}

// place is a token of an episode: hashes of the tokens before it.
type place struct {
	episode       string
	seed, context uint64
}

// sampleTokens samples the answer to a request and calls each for each of its tokens, whose error ends it.
func (e *Engine) sampleTokens(
	ctx context.Context, r *schemas.GenerateRequest, each func(token int32, logprob float32) error,
) (schemas.GenerateStop, error) {
	last, at := int32(0), place{episode: r.Episode, seed: r.Seed}
	for _, token := range r.Tokens {
		last, at.context = token, schemas.MixSeed(at.context+uint64(token)+1)
	}
	for i := range r.MaxTokens {
		if err := e.awaitToken(ctx); err != nil {
			return "", err
		}
		draw := schemas.MixSeed(r.Seed + uint64(len(r.Tokens)+i)*schemas.SeedStep + uint64(last))
		last = e.First + int32(draw%e.Kinds)
		e.countToken(at)
		at.context = schemas.MixSeed(at.context + uint64(last) + 1)
		if err := each(last, -float32(draw%1000)/1000); err != nil {
			return "", err
		}
		if slices.Contains(r.StopTokens, last) {
			return schemas.GenerateStopToken, nil
		}
	}
	return schemas.GenerateLength, nil
}

// awaitToken takes the time of a token.
func (e *Engine) awaitToken(ctx context.Context) error {
	if e.Pace == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(e.Pace)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) countToken(at place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sampled == nil {
		e.sampled = map[place]int{}
	}
	e.sampled[at]++
}

// Generate makes the engine a policy.
func (e *Engine) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	return e.GenerateProgress(ctx, r, func(*generate.Result) {})
}

// GenerateProgress is Generate, and calls progress with the tokens so far after each token.
func (e *Engine) GenerateProgress(
	ctx context.Context, r *schemas.GenerateRequest, progress func(*generate.Result),
) (*generate.Result, error) {
	g := &generate.Result{Engine: "stand-in"}
	stop, err := e.sampleTokens(ctx, r, func(token int32, logprob float32) error {
		g.Tokens, g.Logprobs, g.Versions = append(g.Tokens, token), append(g.Logprobs, logprob), append(g.Versions, e.Version)
		progress(g)
		return nil
	})
	g.Stop = stop
	return g, err
}

// ServeCall is a [generate.Handler] that sends each token by itself.
func (e *Engine) ServeCall(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	stop, err := e.sampleTokens(ctx, r, func(token int32, logprob float32) error {
		return emit(&schemas.GenerateChunk{Tokens: []int32{token}, Logprobs: []float32{logprob}, Versions: []int32{e.Version}})
	})
	if err != nil {
		return err
	}
	return emit(&schemas.GenerateChunk{Done: true, Stop: stop})
}

// Sampled counts the tokens that were sampled, and how many of them had been sampled before.
func (e *Engine) Sampled() (all, again int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.sampled {
		all, again = all+n, again+n-1
	}
	return all, again
}

// Forget forgets the tokens that were sampled.
func (e *Engine) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.sampled)
}
