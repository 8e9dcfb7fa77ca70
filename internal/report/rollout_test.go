package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// spoken is a rollout of two segments, the second with a new context, whose tokens are letters.
func spoken() *schemas.Trajectory {
	return &schemas.Trajectory{
		ID: "g000001-a0-2", Group: "g000001-a0", Sample: 2, GroupSize: 4, PromptID: "p", Source: "s",
		Segments: []schemas.Segment{
			{
				Tokens: []int32{'a', 'b', 'c', 'd', 'e', 'f'}, ActionMask: []byte{0, 0, 1, 1, 0, 1}, Versions: []int32{-1, -1, 3, 3, -1, 4},
				Logprobs: make([]float32, 6), Temperature: 1,
			},
			{Tokens: []int32{'g', 'h', 'i'}, ActionMask: []byte{0, 1, 1}, Versions: []int32{-1, 4, 4}, Logprobs: make([]float32, 3), Temperature: 1},
		},
		Turns: []schemas.Turn{
			{Segment: 0, Start: 2, End: 4, Calls: []schemas.ToolCall{{Tool: "search", Arguments: "cd", Duration: 1500 * time.Microsecond, Error: "no such page", Failed: true}, {Tool: "python", Arguments: "1/0", Failed: true}}},
			{Segment: 0, Start: 5, End: 6, ProcessReward: 0.5, Reward: 0.25},
			{Segment: 1, Start: 1, End: 2, Calls: []schemas.ToolCall{{Tool: "search", Arguments: "h"}}},
			{Segment: 1, Start: 2, End: 3},
		},
		Reward: 0.75, Rewards: map[string]float64{"exact_match": 1, "length": -0.25}, Answer: "i", Stop: schemas.StopAnswer,
	}
}

func letters(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune(id)
	}
	return b.String()
}

// Newcomer's friction 5: rollouts can be read as text, each part with who says it.
func TestARolloutIsReadAsText(t *testing.T) {
	t.Parallel()
	r := NewRollout(spoken(), letters)
	var out bytes.Buffer
	require.NoError(t, r.Print(&out, false))
	require.Equal(t, `  prompt id    p, source s, sample 2 of 4
  reward       0.750   exact_match 1   length -0.25
  stopped by   answer
  tokens       9 tokens, 5 sampled by version 3 to 4
  prompt       ab
  policy       cd
  tool         search("cd") 1.5ms: no such page
  tool         python("1/0") 0s: failed
  observation  e
  policy       f   (process reward 0.5)   (turn reward 0.25)
  context      g
  policy       h
  tool         search("h") 0s
  policy       i
  answer       i
`, out.String())
	require.Equal(t, []int{0, 0, 1, 1, 0, 1}, r.Segments[0].ActionMask)

	out.Reset()
	require.NoError(t, r.Print(&out, true))
	require.Contains(t, out.String(), "  policy       \x1b[36mcd\x1b[0m\n")
	require.Contains(t, out.String(), "  prompt       ab\n", "the policy's own words alone stand out")
}

// Every token of a rollout is in one part, whatever its mask and turns.
func TestEveryTokenOfARolloutIsInOnePart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		trajectory := &schemas.Trajectory{}
		var want strings.Builder
		for s := range rapid.IntRange(1, 3).Draw(t, "segments") {
			n := rapid.IntRange(1, 12).Draw(t, "tokens")
			segment := schemas.Segment{Versions: make([]int32, n), Logprobs: make([]float32, n)}
			for range n {
				segment.Tokens = append(segment.Tokens, rapid.Int32Range('a', 'z').Draw(t, "token"))
				segment.ActionMask = append(segment.ActionMask, rapid.ByteRange(0, 1).Draw(t, "mask"))
			}
			want.WriteString(letters(segment.Tokens))
			trajectory.Segments = append(trajectory.Segments, segment)
			start := rapid.IntRange(0, n).Draw(t, "start")
			trajectory.Turns = append(trajectory.Turns, schemas.Turn{
				Segment: s, Start: start, End: rapid.IntRange(start, n).Draw(t, "end"), Calls: make([]schemas.ToolCall, rapid.IntRange(0, 2).Draw(t, "calls")),
			})
		}
		var have strings.Builder
		for _, p := range NewRollout(trajectory, letters).Parts {
			if p.Role != RoleTool {
				have.WriteString(p.Text)
			}
		}
		require.Equal(t, want.String(), have.String())
	})
}

// Whatever a trajectory holds, the terminal is given graphic characters and line breaks alone: no escape sequence, no
// control character, no change of direction.
func TestNothingOfARolloutSteersTheTerminal(t *testing.T) {
	t.Parallel()
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			"\x1b]0;title\x07", "\x1b[2J", "\u009b31m", "\r", "\n", "\t", "\b", "\x7f", "\u202e", "\xff\xfe", "word", "é", "日本", "\x00",
		})).Draw(t, "pieces"), "")
	})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string { return text.Draw(t, name) }
		trajectory := spoken()
		trajectory.PromptID, trajectory.Source, trajectory.Answer = draw("prompt"), draw("source"), draw("answer")
		trajectory.Stop, trajectory.Error = schemas.StopReason(draw("stop")), draw("error")
		trajectory.Rewards = map[string]float64{draw("component"): 1}
		trajectory.Turns[0].Calls[0] = schemas.ToolCall{Tool: draw("tool"), Arguments: draw("arguments"), Error: draw("fault")}
		trajectory.Segments[0].Agent, trajectory.AgentRewards = draw("agent"), map[string]float64{draw("agent"): 1}
		said := draw("tokens")
		var out bytes.Buffer
		require.NoError(t, NewRollout(trajectory, func([]int32) string { return said }).Print(&out, false))
		for _, r := range out.String() {
			require.True(t, r == '\n' || unicode.IsGraphic(r), "%q", out.String())
		}
		require.NotContains(t, Plain(said), "\n")
	})
	require.Equal(t, `é日 a\x1b[2J\x0d\n\t\u202e\x9b\xff`, Plain("é日 a\x1b[2J\r\n\t\u202e\u009b\xff"))
}
