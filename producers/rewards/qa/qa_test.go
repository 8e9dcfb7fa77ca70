package qa

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

func TestScore(t *testing.T) {
	t.Parallel()
	cfg := Type().Config().(*Config)
	cfg.F1, cfg.Answered = 0.5, 0.1
	r, err := Type().Open(t.Context(), rewards.Opening{Config: cfg})
	require.NoError(t, err)
	for answer, want := range map[string]map[string]float64{
		"The Beatles!":    {"exact_match": 1, "f1": 1, "answered": 1},
		"Beatles of York": {"exact_match": 0, "f1": 0.5, "answered": 1},
		"the":             {"exact_match": 0, "f1": 0, "answered": 0},
		"":                {"exact_match": 0, "f1": 0, "answered": 0},
	} {
		got, err := r.Score(t.Context(), &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"beatles", "a"}}},
			&producers.Transcript{Answer: answer, Stop: schemas.StopAnswer})
		require.NoError(t, err)
		require.Equal(t, want, got.Components, answer)
		require.InDelta(t, want["exact_match"]+0.5*want["f1"]+0.1*want["answered"], got.Total, 1e-12)
	}
	cut, err := r.Score(t.Context(), &schemas.Ticket{Prompt: schemas.Prompt{Answers: []string{"beatles"}}}, &producers.Transcript{Answer: "beatles", Stop: schemas.StopTokens})
	require.NoError(t, err)
	require.Zero(t, cut.Total, "a limit ended it")
	cfg.Normalizer = "loud"
	_, err = Type().Open(t.Context(), rewards.Opening{Config: cfg})
	require.ErrorContains(t, err, "normalizer: unknown")
}
