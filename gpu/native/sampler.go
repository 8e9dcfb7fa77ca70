package native

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// block is the number of probabilities that are summed before the search of the inverse cumulative distribution looks inside.
const block = 64

// sampler draws tokens from logits. A single goroutine uses it.
type sampler struct {
	probs []float32 // not normalized
	sums  []float64 // of blocks of probs
}

// sampleToken draws a token from logits by the parameters of x. With a temperature it draws from the full softmax of logits /
// x.Temperature, by inverse cumulative distribution at x.U. At temperature 0 it takes the most likely token, the lowest id
// among equals, with its log-probability at temperature 1.
func (s *sampler) sampleToken(logits []float32, x *gpu.Extension) gpu.Sampled {
	// If a logit is not finite, neither is the sum; finite logits are far from making it overflow.
	if sum := kernel.Sum(logits); sum-sum != 0 {
		return gpu.Sampled{Token: -1, Err: gpu.ErrNotFinite}
	}
	most := kernel.Max(logits)
	inverse := float32(1)
	if x.Temperature > 0 {
		inverse = 1 / x.Temperature
	}
	total := s.fillProbabilities(logits, most, inverse)
	logTotal := math.Log(total)
	logprob := func(i int) float32 { return float32(float64((logits[i]-most)*inverse) - logTotal) }
	token := -1
	if x.Temperature > 0 {
		token = s.searchToken(x.U * total)
	}
	if token < 0 {
		token = slices.Index(logits, most)
	}
	out := gpu.Sampled{Token: int32(token), Logprob: logprob(token)}
	if x.TopLogprobs > 0 {
		out.Top = make([]gpu.TokenLogprob, x.TopLogprobs)
		for i, token := range mostLikely(logits, x.TopLogprobs) {
			out.Top[i] = gpu.TokenLogprob{Token: int32(token), Logprob: logprob(token)}
		}
	}
	return out
}

// mostLikely returns the tokens of the n largest logits, largest first and by id among equals.
func mostLikely(logits []float32, n int) []int {
	least := leastFirst{logits: logits}
	for i, x := range logits {
		switch {
		case len(least.tokens) < n:
			heap.Push(&least, i)
		case x > logits[least.tokens[0]]:
			least.tokens[0] = i
			heap.Fix(&least, 0)
		}
	}
	slices.SortFunc(least.tokens, least.compareTokens)
	return least.tokens
}

// leastFirst is a heap of tokens with the least likely token at its root; among equals, the highest id.
type leastFirst struct {
	logits []float32
	tokens []int
}

// compareTokens orders by falling logit, then by id.
func (h *leastFirst) compareTokens(a, b int) int {
	return cmp.Or(cmp.Compare(h.logits[b], h.logits[a]), cmp.Compare(a, b))
}

func (h *leastFirst) Len() int           { return len(h.tokens) }
func (h *leastFirst) Less(i, j int) bool { return h.compareTokens(h.tokens[i], h.tokens[j]) > 0 }
func (h *leastFirst) Swap(i, j int)      { h.tokens[i], h.tokens[j] = h.tokens[j], h.tokens[i] }
func (h *leastFirst) Push(x any)         { h.tokens = append(h.tokens, x.(int)) }

func (h *leastFirst) Pop() any {
	last := h.tokens[len(h.tokens)-1]
	h.tokens = h.tokens[:len(h.tokens)-1]
	return last
}

// fillProbabilities fills probs with exp((logits-most)*inverse) and sums with its block sums, and returns their sum, which is
// at least 1. The exponentials and the sums of blocks are float32, the sum of the blocks is float64: its relative error
// is a few 1e-7 however large the vocabulary.
func (s *sampler) fillProbabilities(logits []float32, most, inverse float32) float64 {
	if cap(s.probs) < len(logits) {
		s.probs = make([]float32, len(logits))
		s.sums = make([]float64, (len(logits)+block-1)/block)
	}
	probs := s.probs[:len(logits)]
	if inverse == 1 {
		kernel.ExpSum(probs, logits, most)
	} else {
		for i, x := range logits {
			probs[i] = (x - most) * inverse
		}
		kernel.Exp(probs, probs)
	}
	s.probs, s.sums = probs, s.sums[:0]
	var total float64
	for start := 0; start < len(probs); start += block {
		sum := float64(kernel.Sum(probs[start:min(start+block, len(probs))]))
		s.sums = append(s.sums, sum)
		total += sum
	}
	return total
}

// searchToken returns the first token at which the cumulative sum exceeds target. Rounding may leave none: then it returns the
// last token with any probability in the block where the search ended, or -1 if that block has none.
func (s *sampler) searchToken(target float64) int {
	var before float64
	for b, sum := range s.sums {
		if before+sum <= target && b < len(s.sums)-1 {
			before += sum
			continue
		}
		last := -1
		for i, p := range s.probs[b*block : min((b+1)*block, len(s.probs))] {
			if p == 0 {
				continue
			}
			last = b*block + i
			if before += float64(p); before > target {
				break
			}
		}
		return last
	}
	return -1
}
