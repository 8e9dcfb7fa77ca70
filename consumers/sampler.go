package consumers

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/gpu/native/kernel"
)

// block is how many probabilities are summed before the search of the inverse cumulative distribution looks inside.
const block = 64

// sampler draws tokens from logits. It is used by one goroutine.
type sampler struct {
	probs []float32 // not normalized
	sums  []float64 // of blocks of probs
}

// sample draws one token of the full softmax of logits / temperature by inverse cumulative distribution at u, in
// [0, 1), and returns its log-probability under that distribution. At temperature 0 it takes the most likely token,
// the lowest id of equals, and returns its log-probability at temperature 1.
func (s *sampler) sample(logits []float32, temperature float32, u float64) (token int32, logprob float32, err error) {
	// A logit that is not finite makes the sum so; finite ones are far from making it overflow.
	if sum := kernel.Sum(logits); sum-sum != 0 {
		return 0, 0, ErrNotFinite
	}
	most := kernel.Max(logits)
	inverse := float32(1)
	if temperature > 0 {
		inverse = 1 / temperature
	}
	total := s.exponentials(logits, most, inverse)
	if temperature == 0 {
		return int32(slices.Index(logits, most)), float32(-math.Log(total)), nil
	}
	i := s.search(u * total)
	if i < 0 {
		i = slices.Index(logits, most)
	}
	return int32(i), float32(float64((logits[i]-most)*inverse) - math.Log(total)), nil
}

// exponentials fills probs with exp((logits-most)*inverse) and sums with its block sums, and returns their sum, which is
// at least 1. The exponentials and the blocks are of float32, what adds the blocks of float64: the relative error of
// the sum is a few 1e-7 however large the vocabulary.
func (s *sampler) exponentials(logits []float32, most, inverse float32) float64 {
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

// search returns the first token at which the cumulative sum exceeds target. Rounding may leave none: then it is the
// last one with any probability in the block where the search ended, or -1 if that has none.
func (s *sampler) search(target float64) int {
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

// uniform is the random number in [0, 1) that draws the token at a position of a context: a counter hash, so
// that no state is carried between tokens, calls or engines. The mixer is SplitMix64's (Steele, Lea and Flood 2014).
func uniform(seed uint64, position int) float64 {
	h := mix(mix(seed^0x5851f42d4c957f2d) + uint64(position)*0x9e3779b97f4a7c15)
	return float64(h>>11) * 0x1p-53
}

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
