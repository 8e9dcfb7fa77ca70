package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
)

// errNothingToForge says that a message has nothing that this kind of forgery changes.
var errNothingToForge = errors.New("the message has nothing to forge")

// liveForgery makes a well-formed trajectory that lies about itself as change says, for another sample of a group that is open as
// likely as not: the group of a true message that has just come.
func liveForgery(change func(rng *rand.Rand, t *schemas.Trajectory) error) func(*stranger, *rand.Rand, *nats.Msg) (*nats.Msg, error) {
	return func(s *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
		if newest, _ := s.witness.newestSample(0); newest != nil {
			honest = newest
		}
		var failed error
		m, err := rewriteMessage(honest, func(t *schemas.Trajectory) {
			suffix := fmt.Sprintf("-%d", t.Sample)
			t.Sample = rng.IntN(t.GroupSize)
			t.ID = strings.TrimSuffix(t.ID, suffix) + fmt.Sprintf("-%d", t.Sample)
			failed = change(rng, t)
		})
		return m, errors.Join(err, failed)
	}
}

func hugeReward(rng *rand.Rand, t *schemas.Trajectory) error {
	t.Reward = []float64{1e7, 1e308, -1e308, 1.7e308}[rng.IntN(4)]
	return nil
}

// hugeProcessRewards are finite, and their sum is not.
func hugeProcessRewards(_ *rand.Rand, t *schemas.Trajectory) error {
	if len(t.Turns) == 0 {
		return errNothingToForge
	}
	t.Turns = append(slices.Clone(t.Turns), t.Turns[len(t.Turns)-1])
	for i := range t.Turns {
		t.Turns[i].ProcessReward = 1e308
	}
	return nil
}

// hotForgery and cold say that the tokens were sampled at another temperature than the ticket's.
func hotForgery(_ *rand.Rand, t *schemas.Trajectory) error { return changeTemperature(t, 2e30) }

func coldForgery(rng *rand.Rand, t *schemas.Trajectory) error {
	return changeTemperature(t, []float32{1e-42, 1e-20, 0.5}[rng.IntN(3)])
}

func changeTemperature(t *schemas.Trajectory, temperature float32) error {
	if t.Greedy() {
		return errNothingToForge
	}
	for i := range t.Segments {
		t.Segments[i].Temperature = temperature
	}
	return nil
}

func otherTask(_ *rand.Rand, t *schemas.Trajectory) error {
	t.Task += "-of-somebody-else"
	return nil
}

func otherPrompt(_ *rand.Rand, t *schemas.Trajectory) error {
	t.PromptID += "-of-somebody-else"
	return nil
}

// promptAsAction marks the tokens of the prompt as sampled.
func promptAsAction(_ *rand.Rand, t *schemas.Trajectory) error {
	s := &t.Segments[0]
	first := slices.Index(s.ActionMask, 1)
	if first < 2 {
		return errNothingToForge
	}
	s.ActionMask = slices.Clone(s.ActionMask)
	for i := 1; i < first; i++ {
		s.ActionMask[i], s.Logprobs[i], s.Versions[i] = 1, s.Logprobs[first], s.Versions[first]
	}
	return nil
}

// manySegments repeats a segment until the trajectory is hundreds of times longer than the ticket allows.
func manySegments(_ *rand.Rand, t *schemas.Trajectory) error {
	t.Segments = slices.Repeat(t.Segments[:1], 400)
	return nil
}

func unlikelyLogprobs(_ *rand.Rand, t *schemas.Trajectory) error {
	s := &t.Segments[0]
	for i, m := range s.ActionMask {
		if m == 1 {
			s.Logprobs[i] = -3e38
		}
	}
	return nil
}

func fromTheFuture(_ *rand.Rand, t *schemas.Trajectory) error {
	s := &t.Segments[0]
	for i, m := range s.ActionMask {
		if m == 1 {
			s.Versions[i] = 1 << 30
		}
	}
	return nil
}
