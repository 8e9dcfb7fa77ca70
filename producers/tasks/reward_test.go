package tasks

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

func TestExactMatch(t *testing.T) {
	for _, tc := range []struct {
		answer string
		want   bool
	}{
		{"port au prince", true}, {"Port-au-Prince", true}, {"port - au - prince .", true}, {"prince", false},
		{"port au prince haiti", false}, {"", false}, {"-", false}, {"p a p", true},
	} {
		require.Equal(t, tc.want, ExactMatch(tc.answer, []string{"port-au-prince", "P.A.P."}), tc.answer)
	}
	require.False(t, ExactMatch("-", []string{"?"}))
}

func TestReward(t *testing.T) {
	reward, err := NewReward(RewardConfig{ExactMatch: 2, Answered: 0.5})
	require.NoError(t, err)
	ticket := &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"a"}}}
	for _, tc := range []struct {
		answer string
		stop   schemas.StopReason
		want   float64
	}{
		{"a", schemas.StopAnswer, 2.5}, {"b", schemas.StopAnswer, 0.5}, {"", schemas.StopAnswer, 0}, {"a", schemas.StopTokens, 0},
	} {
		got, err := reward.Score(t.Context(), ticket, &producers.Transcript{Answer: tc.answer, Stop: tc.stop})
		require.NoError(t, err)
		require.InDelta(t, tc.want, got.Total, 0)
		require.InDelta(t, tc.want, 2*got.Components["exact_match"]+0.5*got.Components["answered"], 0)
	}
	_, err = NewReward(RewardConfig{ExactMatch: math.NaN()})
	require.ErrorContains(t, err, "exact_match: NaN")
}
