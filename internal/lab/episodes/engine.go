package episodes

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
)

// engine samples tokens that the seed, the position and the token before fix, as an engine's random numbers do, and counts how often each
// was sampled.
type engine struct {
	cfg *Config

	mu      sync.Mutex
	sampled map[place]int
}

// place is a token of an episode: a hash of what comes before it.
type place struct {
	seed, context uint64
}

func newEngine(c *Config) *engine { return &engine{cfg: c, sampled: map[place]int{}} }

// serveCall is a handler of generate calls.
func (g *engine) serveCall(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	last, at := int32(0), place{seed: r.Seed}
	for _, token := range r.Tokens {
		last, at.context = token, schemas.MixSeed(at.context+uint64(token)+1)
	}
	stop := schemas.GenerateLength
	for i := range r.MaxTokens {
		if err := harness.Wait(ctx, g.cfg.Token); err != nil {
			return err
		}
		draw := schemas.MixSeed(r.Seed + uint64(len(r.Tokens)+i)*schemas.SeedStep + uint64(last))
		last = stopToken + int32(draw%20)
		g.mu.Lock()
		g.sampled[at]++
		g.mu.Unlock()
		at.context = schemas.MixSeed(at.context + uint64(last) + 1)
		chunk := &schemas.GenerateChunk{Tokens: []int32{last}, Logprobs: []float32{-float32(draw%1000) / 1000}, Versions: []int32{0}}
		if err := emit(chunk); err != nil {
			return err
		}
		if slices.Contains(r.StopTokens, last) {
			stop = schemas.GenerateStopToken
			break
		}
	}
	return emit(&schemas.GenerateChunk{Done: true, Stop: stop})
}

// countTokens counts the tokens that were sampled, and those of them that had been sampled before.
func (g *engine) countTokens() (all, again int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.sampled {
		all, again = all+n, again+n-1
	}
	return all, again
}
