package batch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/stats"
)

// Bounds hold for every trajectory of a run, whatever its ticket allows. 0 is no bound.
type Bounds struct {
	// Reward bounds, by magnitude, the outcome reward, each of its components, each process reward, and their sum with the shaping.
	Reward float64
	// Segments bounds the segments of a trajectory.
	Segments int
}

// Bounds that no ticket sets and no honest rollout reaches.
const (
	maxComponents = 256 // reward components
	maxAgents     = 256 // agents with a reward of their own
	maxName       = 256 // bytes of the name of a component or of an agent
	// A tool call may outlast the rollout's limit by as much again and spareTime, because not each tool obeys its context; where there is
	// no limit, maxCall bounds it.
	spareTime = time.Minute
	maxCall   = 30 * 24 * time.Hour
)

// errForeign marks a trajectory that answers another question than the ticket's; with any other fault it cannot be trained on.
var errForeign = errors.New("not what the ticket asked for")

// checkAnswer checks a trajectory against its ticket. opening are the tokens that its first segment must begin with; nil is not known.
func checkAnswer(t *schemas.Trajectory, asked *schemas.Ticket, greedy bool, opening []int32) error {
	for _, field := range []struct{ name, have, want string }{
		{"task", t.Task, asked.Task}, {"prompt_id", t.PromptID, asked.Prompt.ID}, {"source", t.Source, asked.Prompt.Source},
	} {
		if field.have != field.want {
			return fmt.Errorf("%w: %s is %.80q, wanted %.80q", errForeign, field.name, field.have, field.want)
		}
	}
	temperature := asked.Sampling.Temperature
	if greedy {
		temperature = 0
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		switch {
		case s.Temperature != temperature && slices.Contains(s.ActionMask, 1):
			return fmt.Errorf("segment %d: temperature is %g, the ticket's is %g", i, s.Temperature, temperature)
		case len(s.Tokens) > asked.Limits.MaxTokens:
			return fmt.Errorf("segment %d: %d tokens, the ticket's limits.max_tokens is %d", i, len(s.Tokens), asked.Limits.MaxTokens)
		}
	}
	if most := asked.Limits.MaxSegments; most > 0 && len(t.Segments) > most {
		return fmt.Errorf("%d segments, the ticket's limits.max_segments is %d", len(t.Segments), most)
	}
	if most, n := asked.Limits.MaxTotalTokens, t.Tokens(); most > 0 && n > most {
		return fmt.Errorf("%d tokens in all segments, the ticket's limits.max_total_tokens is %d", n, most)
	}
	if err := checkOpening(t, opening); err != nil {
		return err
	}
	calls, longest, text := 0, LongestCall(asked.Limits.Timeout), len(t.Answer)+len(t.Error)
	for i, turn := range t.Turns {
		calls += len(turn.Calls)
		for _, call := range turn.Calls {
			if call.Duration < 0 || call.Duration > longest {
				return fmt.Errorf("turn %d: duration is %s, the longest that limits.timeout %s leaves room for is %s", i, call.Duration, asked.Limits.Timeout, longest)
			}
			text += len(call.Tool) + len(call.Arguments) + len(call.Error)
		}
	}
	if calls > asked.Limits.MaxTurns {
		return fmt.Errorf("turns: %d tool calls, the ticket's limits.max_turns is %d", calls, asked.Limits.MaxTurns)
	}
	if most := schemas.MaxText(max(asked.Limits.MaxTokens, t.Tokens())); text > most {
		return fmt.Errorf("answer, error and turns: %d bytes of text, at most %d", text, most)
	}
	return nil
}

// LongestCall is the longest that a call of a tool may have taken under a limit of its rollout; 0 is no limit.
func LongestCall(timeout time.Duration) time.Duration {
	if timeout > 0 {
		return min(maxCall, 2*timeout+spareTime)
	}
	return maxCall
}

// checkOpening checks the beginning of the first segment against the prompt: a token of the prompt that is marked as sampled would be
// trained on.
func checkOpening(t *schemas.Trajectory, opening []int32) error {
	if len(opening) == 0 || len(t.Segments) == 0 {
		return nil
	}
	first := &t.Segments[0]
	if len(first.Tokens) < len(opening) || !slices.Equal([]int32(first.Tokens[:len(opening)]), opening) {
		return fmt.Errorf("%w: segment 0 does not begin with the %d tokens of the prompt", errForeign, len(opening))
	}
	if at := slices.Index(first.ActionMask[:len(opening)], 1); at >= 0 {
		return fmt.Errorf("segment 0: token %d is marked as sampled and is one of the %d of the prompt", at, len(opening))
	}
	return nil
}

// CheckTrajectory returns why no trainer with these bounds trains on a trajectory, whatever its ticket; nil is that a trainer may.
func (b Bounds) CheckTrajectory(t *schemas.Trajectory) error {
	return b.checkMember(&Member{Trajectory: t})
}

// checkMember checks a member against the bounds.
func (b Bounds) checkMember(m *Member) error {
	t := m.Trajectory
	if b.Segments > 0 && len(t.Segments) > b.Segments {
		return fmt.Errorf("%d segments, trainer.limits.max_segments is %d", len(t.Segments), b.Segments)
	}
	if len(t.Rewards) > maxComponents {
		return fmt.Errorf("rewards: %d components, at most %d", len(t.Rewards), maxComponents)
	}
	check := func(what string, x float64) error {
		switch {
		case !stats.Finite(x):
			return fmt.Errorf("%s is %g", what, x)
		case b.Reward > 0 && math.Abs(x) > b.Reward:
			return fmt.Errorf("%s is %g, trainer.limits.max_reward is %g", what, x, b.Reward)
		}
		return nil
	}
	if err := check("reward", t.Reward); err != nil {
		return err
	}
	for name, x := range t.Rewards {
		if len(name) > maxName {
			return fmt.Errorf("rewards: a component's name has %d bytes, at most %d", len(name), maxName)
		}
		if err := check("rewards["+name+"]", x); err != nil {
			return err
		}
	}
	for i := range t.Turns {
		if err := check(fmt.Sprintf("turn %d: process reward", i), t.Turns[i].ProcessReward); err != nil {
			return err
		}
		if err := check(fmt.Sprintf("turn %d: reward", i), t.Turns[i].Reward); err != nil {
			return err
		}
	}
	if err := check("reward with what its length adds", m.Reward); err != nil {
		return err
	}
	if err := check("return", m.Return); err != nil {
		return err
	}
	return m.checkAgentRewards(check)
}
