package weighted

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

func TestReward(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.ExactMatch, cfg.Answered = 2, 0.5
	for _, tc := range []struct {
		answer string
		stop   schemas.StopReason
		want   float64
	}{
		{"port au prince", schemas.StopAnswer, 2.5},
		{"Port-au-Prince", schemas.StopAnswer, 2.5},
		{"port - au - prince .", schemas.StopAnswer, 2.5},
		{"p a p", schemas.StopAnswer, 2.5},
		{"prince", schemas.StopAnswer, 0.5},
		{"port au prince haiti", schemas.StopAnswer, 0.5},
		{"-", schemas.StopAnswer, 0.5},
		{"", schemas.StopAnswer, 0},
		{"port au prince", schemas.StopTokens, 0},
	} {
		got := score(t, cfg, tc.answer, tc.stop)
		require.InDelta(t, tc.want, got.Total, 0, tc.answer)
		require.InDelta(t, tc.want, 2*got.Components["exact_match"]+0.5*got.Components["answered"], 0)
		require.Len(t, got.Components, 2)
	}
}

func TestRewardsForPartsOfAnAnswer(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.ExactMatch, cfg.Answered, cfg.SubstringMatch, cfg.F1, cfg.Normalizer = 0, 0, 1, 3, "squad"
	got := score(t, cfg, "the Port-au-Prince of Haiti", schemas.StopAnswer)
	require.Equal(t, map[string]float64{"exact_match": 0, "answered": 1, "substring_match": 1, "f1": 0.5}, got.Components)
	require.InDelta(t, 2.5, got.Total, 1e-12)
	require.Zero(t, score(t, cfg, "?", schemas.StopAnswer).Total)
}

// episode is a rollout of three turns: a search that failed, one that was heard, and the answer.
func episode(answer string) *producers.Transcript {
	return &producers.Transcript{
		Stop: schemas.StopAnswer, Answer: answer, Text: "what ? <answer>" + answer + "</answer>",
		Turns: []producers.TranscriptTurn{
			{Text: "one two", Tool: "search", Error: "too slow"}, {Text: "three", Tool: "search"}, {Text: "four five"},
		},
	}
}

func TestRewardsForHowAnAnswerWasFound(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Format, cfg.CodeExecution, cfg.Length, cfg.Published = 1, 1, 1, map[string]float64{"verl_search_r1": 2, "agent_r1": 0}
	cfg.LengthTarget.Words, cfg.LengthTarget.Tolerance = 10, 0
	got := scoreOf(t, cfg, "", episode("Port-au-Prince"))
	require.Equal(t, map[string]float64{
		"exact_match": 1, "answered": 1, "format": 1, "code_execution": 0.5, "length": 0.75, "verl_search_r1": 1,
	}, got.Components)
	require.InDelta(t, 1+0.1+1+0.5+0.75+2, got.Total, 1e-12)

	void := episode("")
	void.Stop, void.Turns = schemas.StopFormat, append(void.Turns, producers.TranscriptTurn{Text: "six"})
	got = scoreOf(t, cfg, "", void)
	require.Equal(t, 0.5, got.Components["format"], "neither of the last two turns did anything")
	got = scoreOf(t, cfg, "", &producers.Transcript{Stop: schemas.StopTokens})
	require.Zero(t, got.Total)
}

func TestRewardsAreChosenBySource(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.BySource = map[string]map[string]float64{"2-hop": {"f1": 4, "answered": 0}, "3-hop": {"verl_search_r1": 3}}
	for source, want := range map[string]float64{"": 0.1, "1-hop": 0.1, "2-hop": 4 * 4.0 / 7, "3-hop": 0} {
		got := scoreOf(t, cfg, source, episode("the port of prince"))
		require.InDelta(t, want, got.Total, 1e-12, source)
		require.Contains(t, got.Components, producers.ComponentExactMatch, "evaluation reads it")
	}
}

// Each call takes its tool's cost from the reward, also a call that failed and further calls of a turn, whatever weights the question's source
// has; a tool without a cost is free.
func TestCallsCost(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Costs = map[string]float64{"dear": 0.25, "cheap": 0.03125}
	cfg.BySource = map[string]map[string]float64{"2-hop": {"exact_match": 3}}
	cfg.Shape.Scale = 2
	asked := episode("Port-au-Prince")
	asked.Turns = []producers.TranscriptTurn{
		{Calls: []producers.TranscriptCall{{Tool: "dear", Error: "away", Failed: true}, {Tool: "free"}}},
		{Calls: []producers.TranscriptCall{{Tool: "cheap"}, {Tool: "cheap"}, {Tool: "dear"}}},
		{Text: "four five"},
	}
	for source, earned := range map[string]float64{"1-hop": 1.1, "2-hop": 3} {
		got := scoreOf(t, cfg, source, asked)
		require.InDelta(t, 0.5625, got.Components[ComponentCost], 0)
		require.InDelta(t, 2*(earned-0.5625), got.Total, 1e-12, source)
	}
	asked.Turns = nil
	got := scoreOf(t, cfg, "2-hop", asked)
	require.InDelta(t, 6, got.Total, 0)
	require.Contains(t, got.Components, ComponentCost, "the mean over episodes counts those without a call")
}

func TestCostsOfOtherToolsAreRefused(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Costs = map[string]float64{"serach": 0.1}
	_, err := Type().Open(t.Context(), rewards.Opening{Config: &cfg, Tools: []string{"finish", "search"}})
	require.EqualError(t, err, "costs.serach: the task has no such tool; it has finish, search")
	_, err = Type().Open(t.Context(), rewards.Opening{Config: &cfg})
	require.NoError(t, err, "an agent that brings its own tools")
	cfg.Costs = map[string]float64{"a": -0.1, "b": math.NaN(), "c": 0}
	_, err = New(cfg)
	require.ErrorContains(t, err, "costs.a: -0.1")
	require.ErrorContains(t, err, "costs.b: NaN")
	require.NotContains(t, err.Error(), "costs.c")
}

func TestRewardsAreShaped(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Shape = rewards.Shape{Bias: -0.1, Scale: 5, Clip: 2}
	require.InDelta(t, 2, scoreOf(t, cfg, "", episode("P.A.P.")).Total, 1e-12)
	require.InDelta(t, 0, scoreOf(t, cfg, "", episode("London")).Total, 1e-12)
}

func TestRewardFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		ExactMatch: math.NaN(), F1: math.Inf(1), Normalizer: "loud", Published: map[string]float64{"f1": 1, "agent_r1": math.NaN()},
		BySource: map[string]map[string]float64{"2-hop": {"em": 1, "f1": math.Inf(-1)}}, LengthTarget: rewards.LengthTarget{Tolerance: -1, TooLong: 2},
	})
	for _, says := range []string{
		"exact_match: NaN", "\nf1: +Inf", `normalizer: unknown "loud" (valid: alphanumeric, squad, words)`,
		"published.f1: unknown component: want one of agent_r1, search_r1, search_r1_format, search_r1_subem, verl_search_r1",
		"published.agent_r1: NaN", "by_source.2-hop.em: unknown component: want one of agent_r1, answered, code_execution, exact_match, f1,",
		"by_source.2-hop.f1: -Inf", "length_target.tolerance: -1", "length_target.too_long: 2", "shape.scale: 0",
	} {
		require.ErrorContains(t, err, says)
	}
}

func score(t *testing.T, cfg Config, answer string, stop schemas.StopReason) producers.Score {
	t.Helper()
	return scoreOf(t, cfg, "", &producers.Transcript{Answer: answer, Stop: stop})
}

func scoreOf(t *testing.T, cfg Config, source string, transcript *producers.Transcript) producers.Score {
	t.Helper()
	reward, err := New(cfg)
	require.NoError(t, err)
	ticket := &schemas.Ticket{Prompt: schemas.Prompt{Source: source, Answers: []string{"port-au-prince", "P.A.P."}}}
	got, err := reward.Score(t.Context(), ticket, transcript)
	require.NoError(t, err)
	return got
}
