package batch

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// Defects P3, S5 and F7: what a trajectory said was not held against the ticket that asked for it, nor against any bound, so
// that one of them stopped the trainer or was the whole step.
func TestATrajectoryIsHeldAgainstItsTicket(t *testing.T) {
	t.Parallel()
	ticket := &schemas.Ticket{
		Task: "quiz", Prompt: schemas.Prompt{ID: "q7", Source: "easy", Text: "ab"}, Sampling: schemas.Sampling{Temperature: 0.5},
		Limits: schemas.Limits{MaxTurns: 1, MaxTokens: 6, Timeout: time.Minute},
	}
	config := Config{
		Groups: 1, MinGroup: 1, Check: Checker(9, 0), Bounds: Bounds{Reward: 100, Segments: 2},
		Opening: func(asked *schemas.Ticket) []int32 {
			var tokens []int32
			for _, c := range asked.Prompt.Text {
				tokens = append(tokens, c-'a'+1)
			}
			return tokens
		},
		Shape: func(t *schemas.Trajectory) float64 {
			if t.Answer == "long" {
				return math.MaxFloat64
			}
			return -1
		},
	}
	answered := func() *schemas.Trajectory {
		tr := trajectory(0, 0, 0, 2, 1, 0, 0, 0)
		tr.Task, tr.PromptID, tr.Source = "quiz", "q7", "easy"
		s := &tr.Segments[0]
		s.Temperature = 0.5
		s.Tokens[1], s.ActionMask[1], s.Logprobs[1], s.Versions[1] = 2, 0, 0, schemas.NoVersion
		tr.Turns = []schemas.Turn{{Start: 2, End: 3, Calls: []schemas.ToolCall{{Tool: "search", Duration: time.Minute}}}, {Start: 3, End: 4}}
		return tr
	}
	for _, c := range []struct {
		name   string
		change func(*schemas.Trajectory)
		want   schemas.Reason
		detail string
	}{
		{"as asked", func(*schemas.Trajectory) {}, "", ""},
		{"a second context need not begin with the prompt", func(t *schemas.Trajectory) {
			s := t.Segments[0]
			s.Tokens = schemas.Int32s{5, 5, 5, 5}
			t.Segments = append(t.Segments, s)
		}, "", ""},
		{"as much as asked and as bounded", func(t *schemas.Trajectory) {
			s := &t.Segments[0]
			for range 2 {
				s.Tokens, s.ActionMask = append(s.Tokens, 8), append(s.ActionMask, 1)
				s.Logprobs, s.Versions = append(s.Logprobs, leastLogprob), append(s.Versions, 0)
			}
			s.Logprobs[5] = 0
			t.Segments = append(t.Segments, t.Segments[0])
			t.Turns[0].Calls[0].Duration, t.Turns[1].End = 3*time.Minute, 6
			t.Turns = append(t.Turns, schemas.Turn{Segment: 1}, schemas.Turn{Segment: 1, End: 6})
			t.Answer = strings.Repeat("x", 1<<20+256*6-len("search"))
			t.Rewards = map[string]float64{strings.Repeat("y", 256): -100}
			for i := range 255 {
				t.Rewards[strings.Repeat("x", i)] = 100
			}
			t.Reward, t.Turns[0].ProcessReward, t.Turns[1].ProcessReward = 100, -100, 100
		}, "", ""},
		{"a little more than as asked", func(t *schemas.Trajectory) { t.Turns[0].Calls[0].Duration = 3*time.Minute + 1 }, schemas.ReasonPoisoned, "turn 0: duration"},
		{"a call that ends before it began", func(t *schemas.Trajectory) { t.Turns[0].Calls[0].Duration = -1 }, schemas.ReasonPoisoned, "turn 0: duration"},
		{"a byte too much", func(t *schemas.Trajectory) {
			t.Answer, t.Error = strings.Repeat("x", 1<<20), strings.Repeat("y", 256*6-len("search")-2)
			t.Turns[0].Calls[0].Arguments, t.Turns[0].Calls[0].Error = "{}", "e"
		}, schemas.ReasonPoisoned, "bytes of text"},
		{"a token that is not in the vocabulary", func(t *schemas.Trajectory) { t.Segments[0].Tokens[3] = 9 }, schemas.ReasonPoisoned, "vocabulary of 9"},
		{"257 components", func(t *schemas.Trajectory) {
			t.Rewards = map[string]float64{}
			for i := range 257 {
				t.Rewards[strings.Repeat("x", i)] = 1
			}
		}, schemas.ReasonPoisoned, "257 components"},
		{"ended by its producer", func(t *schemas.Trajectory) { t.Stop = schemas.StopCancelled }, schemas.ReasonPoisoned, "cancelled"},
		{"another task", func(t *schemas.Trajectory) { t.Task = "x" }, schemas.ReasonForeign, `task is "x", wanted "quiz"`},
		{"another prompt", func(t *schemas.Trajectory) { t.PromptID = "q8" }, schemas.ReasonForeign, `prompt_id is "q8", wanted "q7"`},
		{"another source", func(t *schemas.Trajectory) { t.Source = "hard" }, schemas.ReasonForeign, `source is "hard", wanted "easy"`},
		{"other prompt tokens", func(t *schemas.Trajectory) { t.Segments[0].Tokens[1] = 3 }, schemas.ReasonForeign, "does not begin with the 2 tokens of the prompt"},
		{"shorter than the prompt", func(t *schemas.Trajectory) {
			t.Segments[0] = schemas.Segment{Tokens: schemas.Int32s{1}, ActionMask: schemas.Bytes{0}, Logprobs: schemas.Float32s{0}, Versions: schemas.Runs{schemas.NoVersion}}
			t.Segments = append(t.Segments, answered().Segments[0])
			t.Turns = nil
		}, schemas.ReasonForeign, "does not begin with"},
		{"the prompt marked as sampled", func(t *schemas.Trajectory) {
			s := &t.Segments[0]
			s.ActionMask[1], s.Versions[1] = 1, 0
		}, schemas.ReasonPoisoned, "token 1 is marked as sampled"},
		{"a tiny temperature", func(t *schemas.Trajectory) { t.Segments[0].Temperature = 1e-20 }, schemas.ReasonPoisoned, "temperature is 1e-20, the ticket's is 0.5"},
		{"a denormal temperature", func(t *schemas.Trajectory) { t.Segments[0].Temperature = 1e-42 }, schemas.ReasonPoisoned, "temperature"},
		{"a huge temperature", func(t *schemas.Trajectory) { t.Segments[0].Temperature = 2e30 }, schemas.ReasonPoisoned, "temperature is 2e+30"},
		{"too many tokens", func(t *schemas.Trajectory) {
			s := &t.Segments[0]
			for range 3 {
				s.Tokens, s.ActionMask = append(s.Tokens, 2), append(s.ActionMask, 1)
				s.Logprobs, s.Versions = append(s.Logprobs, -1), append(s.Versions, 0)
			}
		}, schemas.ReasonPoisoned, "7 tokens, the ticket's limits.max_tokens is 6"},
		{"too many segments", func(t *schemas.Trajectory) {
			t.Segments = append(t.Segments, t.Segments[0], t.Segments[0])
		}, schemas.ReasonPoisoned, "3 segments, trainer.limits.max_segments is 2"},
		{"too many tool calls", func(t *schemas.Trajectory) { t.Turns[1].Calls = t.Turns[0].Calls }, schemas.ReasonPoisoned, "2 tool calls, the ticket's limits.max_turns is 1"},
		{"one turn twice", func(t *schemas.Trajectory) { t.Turns[1] = t.Turns[0] }, schemas.ReasonPoisoned, "turn 1: begins at token 2"},
		{"turns out of order", func(t *schemas.Trajectory) { t.Turns[0], t.Turns[1] = t.Turns[1], t.Turns[0] }, schemas.ReasonPoisoned, "turn 1: begins at token 2"},
		{"an endless call", func(t *schemas.Trajectory) { t.Turns[0].Calls[0].Duration = math.MaxInt64 }, schemas.ReasonPoisoned, "turn 0: duration"},
		{"a book for an answer", func(t *schemas.Trajectory) { t.Answer = strings.Repeat("x", 2<<20) }, schemas.ReasonPoisoned, "2097158 bytes of text"},
		{"many components", func(t *schemas.Trajectory) {
			t.Rewards = map[string]float64{}
			for i := range 1000 {
				t.Rewards[strings.Repeat("x", i)] = 1
			}
		}, schemas.ReasonPoisoned, "1000 components, at most 256"},
		{"a component of a long name", func(t *schemas.Trajectory) {
			t.Rewards = map[string]float64{strings.Repeat("x", 257): 1}
		}, schemas.ReasonPoisoned, "name has 257 bytes"},
		{"a huge component", func(t *schemas.Trajectory) { t.Rewards = map[string]float64{"f1": -1e9} }, schemas.ReasonPoisoned, "rewards[f1] is -1e+09"},
		{"a huge reward", func(t *schemas.Trajectory) { t.Reward = 1.7e308 }, schemas.ReasonPoisoned, "reward is 1.7e+308, trainer.limits.max_reward is 100"},
		{"a huge process reward", func(t *schemas.Trajectory) { t.Turns[0].ProcessReward = -101 }, schemas.ReasonPoisoned, "turn 0: process reward is -101"},
		{"rewards that are too much together", func(t *schemas.Trajectory) {
			t.Reward, t.Turns[0].ProcessReward, t.Turns[1].ProcessReward = 90, 9, 9
		}, schemas.ReasonPoisoned, "return is 107"},
		{"a reward that its shaping makes too large", func(t *schemas.Trajectory) { t.Answer = "long" }, schemas.ReasonPoisoned, "reward with what its length adds"},
		{"what no sampler draws", func(t *schemas.Trajectory) { t.Segments[0].Logprobs[3] = -math.MaxFloat32 }, schemas.ReasonPoisoned, "log-probability is -3.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(config, Group{Size: 2, Ticket: ticket})
			in := answered()
			c.change(in)
			e := s.trajectory(in)
			if c.want == "" {
				require.Empty(t, e.Verdicts)
				return
			}
			require.Len(t, e.Verdicts, 1)
			require.Equal(t, c.want, e.Verdicts[0].Reason)
			require.Contains(t, e.Verdicts[0].Detail, c.detail)
			other := answered()
			other.Sample, other.ID = 1, TicketID(0, 0, 1)
			require.Len(t, s.trajectory(other).Ready, 1, "the group goes on without it")
		})
	}
}

func TestWithoutBoundsARewardIsFiniteAllTheSame(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1}, Group{Size: 1})
	in := trajectory(0, 0, 0, 1, math.MaxFloat64, 0)
	in.Turns = []schemas.Turn{{Start: 1, End: 2, ProcessReward: math.MaxFloat64}}
	e := s.trajectory(in)
	require.Equal(t, schemas.ReasonPoisoned, e.Verdicts[0].Reason)
	require.Equal(t, "return is +Inf", e.Verdicts[0].Detail)
}

func TestWhereATicketHasNoTimeLimitACallMayTakeThirtyDays(t *testing.T) {
	t.Parallel()
	ticket := &schemas.Ticket{Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTurns: 1, MaxTokens: 4}}
	for duration, want := range map[time.Duration]int{0: 0, time.Hour: 0, 30 * 24 * time.Hour: 0, 30*24*time.Hour + 1: 1} {
		s := newScene(Config{Groups: 1, MinGroup: 1}, Group{Size: 1, Ticket: ticket})
		in := trajectory(0, 0, 0, 1, 1, 0)
		in.Turns = []schemas.Turn{{Start: 1, End: 2, Calls: []schemas.ToolCall{{Tool: "search", Duration: duration}}}}
		e := s.trajectory(in)
		require.Len(t, e.Verdicts, want, "%s", duration)
	}
}

func TestABoundOfLessThanOneIsABound(t *testing.T) {
	t.Parallel()
	for reward, want := range map[float64]int{0.5: 0, -0.5: 0, 0.625: 1, -1: 1} {
		s := newScene(Config{Groups: 1, MinGroup: 1, Bounds: Bounds{Reward: 0.5}}, Group{Size: 1})
		require.Len(t, s.trajectory(trajectory(0, 0, 0, 1, reward, 0)).Verdicts, want, "reward %g", reward)
	}
}

// A baseline is held against the ticket of its group but for the temperature, which is its own.
func TestABaselineIsHeldAgainstItsTicket(t *testing.T) {
	t.Parallel()
	ticket := &schemas.Ticket{Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 4}}
	s := newScene(Config{Groups: 1, MinGroup: 1, Baseline: true}, Group{Size: 2, HasBaseline: true, Ticket: ticket})
	require.Empty(t, s.trajectory(greedy(trajectory(0, 0, 1, 2, 1, 0))).Verdicts)
	require.Len(t, s.trajectory(trajectory(0, 0, 0, 2, 1, 0)).Ready, 1)
}
