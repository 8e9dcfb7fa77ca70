package batch

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// leastLogprob is below the log-probability of any token that a sampler can draw in float32: the smallest number above 0 is 2^-149, whose
// logarithm is -103.3. The rest is for rounding.
const leastLogprob = -200

// Checker returns a check that a trajectory can be trained on by a model: arrays of one length, tokens within the vocabulary, segments no
// longer than maxTokens (0 is no bound), log-probabilities that a sampler can draw, a version at every sampled token, turns that lie within
// their segments, in order and apart. The Assembler checks the temperature and the rewards, because it has the ticket.
func Checker(vocabSize, maxTokens int) func(*schemas.Trajectory) error {
	return func(t *schemas.Trajectory) error {
		for i := range t.Segments {
			if err := checkSegment(&t.Segments[i], vocabSize, maxTokens); err != nil {
				return fmt.Errorf("segment %d: %w", i, err)
			}
		}
		segment, end := 0, 0
		for i, turn := range t.Turns {
			if turn.Segment < 0 || turn.Segment >= len(t.Segments) || turn.Start < 0 || turn.End < turn.Start ||
				turn.End > len(t.Segments[turn.Segment].Tokens) {
				return fmt.Errorf("turn %d: tokens %d to %d of segment %d do not exist", i, turn.Start, turn.End, turn.Segment)
			}
			if turn.Segment < segment || turn.Segment == segment && turn.Start < end {
				return fmt.Errorf("turn %d: begins at token %d of segment %d, before the end of the turn before it", i, turn.Start, turn.Segment)
			}
			segment, end = turn.Segment, turn.End
		}
		return nil
	}
}

func checkSegment(s *schemas.Segment, vocabSize, maxTokens int) error {
	n := len(s.Tokens)
	switch {
	case len(s.ActionMask) != n || len(s.Logprobs) != n || len(s.Versions) != n:
		return fmt.Errorf("%d tokens, %d mask, %d log-probability and %d version entries", n, len(s.ActionMask), len(s.Logprobs), len(s.Versions))
	case maxTokens > 0 && n > maxTokens:
		return fmt.Errorf("%d tokens: the model takes %d", n, maxTokens)
	case n > 0 && s.ActionMask[0] != 0:
		return errors.New("the first token is marked as sampled")
	}
	for i, tok := range s.Tokens {
		if tok < 0 || int(tok) >= vocabSize {
			return fmt.Errorf("token %d at %d is not in the vocabulary of %d", tok, i, vocabSize)
		}
		if s.ActionMask[i] > 1 {
			return fmt.Errorf("action mask is %d at %d", s.ActionMask[i], i)
		}
		if s.ActionMask[i] == 0 {
			continue
		}
		switch lp := float64(s.Logprobs[i]); {
		case !(lp >= leastLogprob && lp <= 1e-3): // written so that NaN fails too
			return fmt.Errorf("log-probability is %g at %d: must be between %d and 0", lp, i, leastLogprob)
		case s.Versions[i] < 0:
			return fmt.Errorf("the sampled token at %d has no policy version", i)
		}
	}
	return nil
}

// checkTemperature refuses a baseline that was not drawn greedily, and a sample whose temperature is not positive and finite.
func checkTemperature(t *schemas.Trajectory, greedy bool) error {
	for i := range t.Segments {
		s := &t.Segments[i]
		switch {
		case !slices.Contains(s.ActionMask, 1):
		case greedy && s.Temperature != 0:
			return fmt.Errorf("segment %d: temperature is %g: a baseline is drawn greedily, at 0", i, s.Temperature)
		case !greedy && (!(s.Temperature > 0) || math.IsInf(float64(s.Temperature), 0)):
			return fmt.Errorf("segment %d: temperature is %g: only tokens drawn at a positive one can be trained on", i, s.Temperature)
		}
	}
	return nil
}
