package producers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// pass@k is the share of the sets of k samples of which one is right at least, counted one by one.
func TestPassAtCountsTheSets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		c, k := rapid.IntRange(0, n).Draw(t, "c"), rapid.IntRange(1, n).Draw(t, "k")
		sets, pass := 0.0, 0.0
		for set := range 1 << n {
			size, right := 0, false
			for i := range n {
				if set>>i&1 == 1 {
					size++
					right = right || i < c
				}
			}
			if size == k {
				sets++
				if right {
					pass++
				}
			}
		}
		require.InDelta(t, pass/sets, producers.PassAt(n, c, k), 1e-12)
	})
	// The case of the paper's own code: estimator(n=10, c=3, k=5) = 1 - C(7,5)/C(10,5).
	require.InDelta(t, 1-21.0/252, producers.PassAt(10, 3, 5), 1e-12)
}

func TestMajorityAt(t *testing.T) {
	t.Parallel()
	votes, right := []string{"oslo", "oslo", "rome", "", ""}, []float64{1, 1, 0, 0, 0}
	require.InDelta(t, 1, producers.MajorityAt(votes, right, 5, 1), 0, "who does not answer does not vote")
	require.InDelta(t, 0.5, producers.MajorityAt([]string{"a", "b"}, []float64{1, 0}, 2, 1), 0, "a tie is a toss")
	require.Zero(t, producers.MajorityAt([]string{"", ""}, []float64{0, 0}, 2, 1))
	// Of three votes, one wrong: two drawn are right and right (1/3), or a tie (2/3).
	require.InDelta(t, 1.0/3+2.0/3/2, producers.MajorityAt(votes[:3], right[:3], 2, 1), 0.1)
}

func sample(id, source string, right float64, answer string) producers.EvalSample {
	return producers.EvalSample{ID: id, Source: source, ExactMatch: &right, Answer: answer, Vote: answer, Components: map[string]float64{"exact_match": right, "f1": right / 2}}
}

func TestMeasured(t *testing.T) {
	t.Parallel()
	var samples []producers.EvalSample
	for q := range 40 {
		for s := range 4 {
			right := float64(0)
			if s < q%5 {
				right = 1
			}
			samples = append(samples, sample(fmt.Sprint(q), fmt.Sprint("s", q%2), right, fmt.Sprint(right)))
		}
	}
	samples = append(samples, producers.EvalSample{ID: "lost", Source: "s0", Error: "away"})
	all, bySource := producers.Measured(samples, 4)
	require.InDelta(t, 0.5, all["mean_at_4"].Value, 1e-12)
	require.InDelta(t, 0.25, all["f1"].Value, 1e-12)
	require.Equal(t, all["mean_at_4"].Value, all["pass_at_1"].Value)
	require.InDelta(t, 0.8, all["pass_at_4"].Value, 1e-12)
	require.InDelta(t, (0+0.5+5.0/6+1+1)/5, all["pass_at_2"].Value, 1e-12)
	require.InDelta(t, (0+0+0.5+1+1)/5, all["maj_at_4"].Value, 1e-12)
	require.Equal(t, 40, all["pass_at_4"].Questions)
	require.Equal(t, 20, bySource["s1"]["pass_at_4"].Questions)
	m := all["mean_at_4"]
	// The bootstrap's interval is near that of the normal distribution: 1.96 times the standard error over questions.
	half := 1.96 * math.Sqrt(0.125) / math.Sqrt(40)
	require.InDelta(t, 0.5-half, m.Low, 0.03)
	require.InDelta(t, 0.5+half, m.High, 0.03)
	again, _ := producers.Measured(samples, 4)
	require.Equal(t, all, again)
	one, _ := producers.Measured(samples[:1], 1)
	require.Equal(t, producers.Measure{Value: 0, Low: 0, High: 0, Questions: 1}, one["mean_at_1"])
	require.NotContains(t, one, "pass_at_1", "one sample has a mean alone")
}

// A tool that is away ends no evaluation: the rollout is tried again, and what stays lost is counted and in no score.
func TestTheMachinerysErrorsEndNoEvaluation(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	prompts := evalPrompts()
	right := reader(t)
	env := newEnvironment(t, right)
	roll := func(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
		switch {
		case ticket.Prompt.ID == prompts[1].ID:
			return nil, nil, fmt.Errorf("search: %w", producers.ErrUnavailable)
		case ticket.Prompt.ID == prompts[0].ID && calls.Add(1) == 1:
			return nil, nil, errors.New("the engine went away")
		}
		return producers.Rollout(ctx, ticket, env)
	}
	cfg := evalConfig()
	cfg.Attempts, cfg.RetryDelay = 3, time.Millisecond
	seen := 0
	cfg.Seen = func(*schemas.Trajectory) { seen++ }
	report, err := producers.EvaluateBy(t.Context(), roll, prompts, cfg)
	require.NoError(t, err)
	require.Equal(t, 1, report.Failed)
	require.Equal(t, 3, report.Retried, "one of the one that came back, two of the one that did not")
	require.Equal(t, 3, report.N)
	require.Equal(t, 3, seen)
	require.InDelta(t, 1, report.ExactMatch, 0)
	require.Len(t, report.Samples, 4)
	require.Equal(t, 3, report.Samples[1].Attempts)
	require.Contains(t, report.Samples[1].Error, "search: unavailable")
	require.Nil(t, report.Samples[1].ExactMatch)
	kept := report.Samples[0]
	require.Equal(t, "helsinki", kept.Answer)
	require.Equal(t, 2, kept.Attempts)
	require.Equal(t, "search", kept.Turns[0].Tool)
	require.NotEmpty(t, kept.Turns[0].Observation)
	require.InDelta(t, 1, report.Measures["mean_at_1"].Value, 0)

	_, err = producers.EvaluateBy(t.Context(), roll, prompts[1:2], cfg)
	require.ErrorContains(t, err, "each of 1 rollouts failed: prompt aoslo: search: unavailable")
}
