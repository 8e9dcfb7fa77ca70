package tasks

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

func TestReward(t *testing.T) {
	t.Parallel()
	cfg := RewardConfig{ExactMatch: 2, Answered: 0.5, Normalizer: "words"}
	for _, tc := range []struct {
		answer string
		stop   schemas.StopReason
		want   float64
	}{
		{"port au prince", schemas.StopAnswer, 2.5}, {"Port-au-Prince", schemas.StopAnswer, 2.5},
		{"port - au - prince .", schemas.StopAnswer, 2.5}, {"p a p", schemas.StopAnswer, 2.5},
		{"prince", schemas.StopAnswer, 0.5}, {"port au prince haiti", schemas.StopAnswer, 0.5},
		{"-", schemas.StopAnswer, 0.5}, {"", schemas.StopAnswer, 0}, {"port au prince", schemas.StopTokens, 0},
	} {
		got := score(t, cfg, tc.answer, tc.stop)
		require.InDelta(t, tc.want, got.Total, 0, tc.answer)
		require.InDelta(t, tc.want, 2*got.Components["exact_match"]+0.5*got.Components["answered"], 0)
		require.Len(t, got.Components, 2)
	}
}

func TestRewardsForPartsOfAnAnswer(t *testing.T) {
	t.Parallel()
	cfg := RewardConfig{SubstringMatch: 1, F1: 3, Normalizer: "squad"}
	got := score(t, cfg, "the Port-au-Prince of Haiti", schemas.StopAnswer)
	require.Equal(t, map[string]float64{"exact_match": 0, "answered": 1, "substring_match": 1, "f1": 0.5}, got.Components)
	require.InDelta(t, 2.5, got.Total, 1e-12)
	require.Zero(t, score(t, cfg, "?", schemas.StopAnswer).Total)
}

func TestRewardFaults(t *testing.T) {
	t.Parallel()
	_, err := NewReward(RewardConfig{ExactMatch: math.NaN(), F1: math.Inf(1), Normalizer: "loud"})
	require.ErrorContains(t, err, "exact_match: NaN")
	require.ErrorContains(t, err, "f1: +Inf")
	require.ErrorContains(t, err, `normalizer: "loud": want one of alphanumeric, squad, words`)
}

func score(t *testing.T, cfg RewardConfig, answer string, stop schemas.StopReason) producers.Score {
	t.Helper()
	reward, err := NewReward(cfg)
	require.NoError(t, err)
	ticket := &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"port-au-prince", "P.A.P."}}}
	got, err := reward.Score(t.Context(), ticket, &producers.Transcript{Answer: answer, Stop: stop})
	require.NoError(t, err)
	return got
}
