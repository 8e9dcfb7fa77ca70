package producers_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/rewards/math"
	"github.com/weir-rl/weir/producers/rewards/qa"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/schemas"
)

// neighbours is a reward to which letters are the same that follow one another, which is no equivalence.
type neighbours struct{ producers.Reward }

func (neighbours) Ballot(answer string) string { return answer }

func (neighbours) Same(a, b string) bool { return a[0]+1 == b[0] || b[0]+1 == a[0] }

// Answers that a reward holds to be the same are votes for one, and no vote holds two that it tells apart.
func TestVotes(t *testing.T) {
	t.Parallel()
	mathematics := func(change func(*math.Config)) producers.Reward {
		cfg := math.DefaultConfig()
		if change != nil {
			change(&cfg)
		}
		r, err := math.New(cfg)
		require.NoError(t, err)
		return r
	}
	words, err := weighted.New(weighted.DefaultConfig())
	require.NoError(t, err)
	short, err := qa.Type().Open(t.Context(), rewards.Opening{Config: qa.Type().Config()})
	require.NoError(t, err)
	long := strings.Repeat("x", 700)
	for name, c := range map[string]struct {
		reward        producers.Reward
		answers, want []string
	}{
		"no reward":                   {nil, []string{"Oslo", " oslo", "the  Oslo", "", "1/2", "0.5"}, []string{"oslo", "oslo", "the oslo", "", "1/2", "0.5"}},
		"a reward that does not vote": {rewardFunc(nil), []string{"Oslo", "oslo."}, []string{"oslo", "oslo."}},
		"weighted, by words":          {words, []string{"Oslo", "oslo.", "the Oslo", "?"}, []string{"oslo", "oslo", "the oslo", ""}},
		"qa, by SQuAD's words":        {short, []string{"Oslo", "the oslo.", "Bergen", "a"}, []string{"oslo", "oslo", "bergen", ""}},
		"math, in other forms": {
			mathematics(nil),
			[]string{"1/2", "0.5", `\frac12`, `So it is \boxed{\dfrac{1}{2}}.`, "#### .5", "2", "The answer is 2.0", `\boxed{}`, "0.51"},
			[]string{"1/2", "1/2", "1/2", "1/2", "1/2", "2", "2", "", "0.51"},
		},
		"math, sets and roots": {
			mathematics(nil),
			[]string{`\{1, 2\}`, `\{2,1\}`, "(1, 2)", "(2, 1)", `\sqrt{12}`, `2\sqrt{3}`, "3.4641"},
			[]string{`\{1, 2\}`, `\{1, 2\}`, "(1, 2)", "(2, 1)", `\sqrt{12}`, `\sqrt{12}`, "3.4641"},
		},
		"math, what is not worked out": {mathematics(nil), []string{"17*23", "391", "391.0", "2/4", "1/2"}, []string{"17*23", "391", "391", "2/4", "1/2"}},
		"math, loose": {
			mathematics(func(c *math.Config) { c.Loose = true }), []string{"17*23", "391", "2/4", "1/2"}, []string{"17*23", "17*23", "2/4", "2/4"},
		},
		"math, boxed alone": {mathematics(func(c *math.Config) { c.Extract = math.ExtractBoxed }), []string{"0.5", `\boxed{0.5}`}, []string{"", "0.5"}},
		"math, units that may be left out": {
			mathematics(nil), []string{"5", `5\text{ cm}`, `5\text{ m}`, `5\text{ m}`}, []string{"5", "5", `5\text{ m}`, `5\text{ m}`},
		},
		"math, beyond what is read": {mathematics(nil), []string{long, long + " ", "1"}, []string{long, long, "1"}},
		"no equivalence":            {neighbours{}, []string{"b", "a", "c", "d", "e"}, []string{"b", "b", "c", "c", "e"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := evalConfig()
			cfg.Temperature, cfg.Samples, cfg.Reward = 1, len(c.answers), c.reward
			roll := func(_ context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
				return &schemas.Trajectory{Answer: c.answers[ticket.Sample]}, &producers.Transcript{}, nil
			}
			// Another question's answers are votes of their own.
			r, err := producers.EvaluateBy(t.Context(), roll, []schemas.Prompt{{ID: "p", Text: "?"}, {ID: "q", Text: "?"}}, cfg)
			require.NoError(t, err)
			var got []string
			for _, s := range r.Samples {
				got = append(got, s.Vote)
			}
			require.Equal(t, append(c.want, c.want...), got)
		})
	}
}

// A majority is of what the reward holds to be the same: three spellings of the right answer win over two of a wrong one.
func TestTheMajorityIsOfAnswersAndNotOfSpellings(t *testing.T) {
	t.Parallel()
	reward, err := math.New(math.DefaultConfig())
	require.NoError(t, err)
	answers := []string{"1/2", "3", "0.5", "3", `\boxed{\frac12}`}
	roll := func(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
		transcript := &producers.Transcript{Answer: answers[ticket.Sample], Stop: schemas.StopAnswer}
		score, err := reward.Score(ctx, ticket, transcript)
		return &schemas.Trajectory{Answer: transcript.Answer, Rewards: score.Components}, transcript, err
	}
	for name, c := range map[string]struct {
		by   producers.Reward
		want float64
	}{"answers": {reward, 1}, "spellings": {nil, 0}} {
		cfg := evalConfig()
		cfg.Temperature, cfg.Samples, cfg.Reward = 1, len(answers), c.by
		r, err := producers.EvaluateBy(t.Context(), roll, []schemas.Prompt{{ID: "p", Text: "?", Answers: []string{"0.5"}}}, cfg)
		require.NoError(t, err)
		require.InDelta(t, 0.6, r.ExactMatch, 1e-12)
		require.InDelta(t, c.want, r.Measures["maj_at_5"].Value, 0, name)
	}
}
