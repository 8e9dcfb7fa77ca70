package producers

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// isFull reports whether the engine takes no longer context: its own bound of a sequence is below the ticket's, and the episode ends by its
// tokens as at the ticket's. An error in its place would lose exactly the episodes that grow so long.
func isFull(g *generate.Result) bool {
	return g != nil && len(g.Tokens) == 0 && g.Stop == schemas.GenerateLength
}

// checkGeneration refuses a generation that would make a trajectory inexact, before any of it is recorded.
func checkGeneration(g *generate.Result, maxTokens int) error {
	switch {
	case g == nil || len(g.Tokens) == 0:
		return errors.New("the policy returned no token")
	case len(g.Logprobs) != len(g.Tokens) || len(g.Versions) != len(g.Tokens):
		return fmt.Errorf("engine %s returned %d tokens, %d log-probabilities and %d versions",
			g.Engine, len(g.Tokens), len(g.Logprobs), len(g.Versions))
	case len(g.Tokens) > maxTokens:
		return fmt.Errorf("engine %s returned %d tokens of at most %d", g.Engine, len(g.Tokens), maxTokens)
	}
	for i, p := range g.Logprobs {
		if p := float64(p); math.IsNaN(p) || math.IsInf(p, 0) || p > 1e-3 {
			return fmt.Errorf("engine %s returned log-probability %v for token %d", g.Engine, p, i)
		}
		if g.Versions[i] < 0 {
			return fmt.Errorf("engine %s returned version %d for token %d", g.Engine, g.Versions[i], i)
		}
	}
	return nil
}
