package compare

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
)

func TestClaimsAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Claim{
		"a reaches 0.9 in at most half of b's steps":      {Left: Term{Arm: "a", Metric: "steps", Score: 0.9}, Operator: "<=", Factor: 0.5, Right: &Term{Arm: "b", Metric: "steps", Score: 0.9}},
		"a reaches 0.9 in at most a quarter of b's steps": {Left: Term{Arm: "a", Metric: "steps", Score: 0.9}, Operator: "<=", Factor: 0.25, Right: &Term{Arm: "b", Metric: "steps", Score: 0.9}},
		"a reaches 0.9 in at most b's steps":              {Left: Term{Arm: "a", Metric: "steps", Score: 0.9}, Operator: "<=", Factor: 1, Right: &Term{Arm: "b", Metric: "steps", Score: 0.9}},
		"a reaches 0.9 in at most 2 times b's steps":      {Left: Term{Arm: "a", Metric: "steps", Score: 0.9}, Operator: "<=", Factor: 2, Right: &Term{Arm: "b", Metric: "steps", Score: 0.9}},
		"a reaches 0.9 in at most 30 steps":               {Left: Term{Arm: "a", Metric: "steps", Score: 0.9}, Operator: "<=", Factor: 1, Plus: 30},
		"a final >= b final":                              {Left: Term{Arm: "a", Metric: "final"}, Operator: ">=", Factor: 1, Right: &Term{Arm: "b", Metric: "final"}},
		"a sampled > b sampled + 0.1":                     {Left: Term{Arm: "a", Metric: "sampled"}, Operator: ">", Factor: 1, Right: &Term{Arm: "b", Metric: "sampled"}, Plus: 0.1},
		"a processor <= 0.5 * b processor - 3":            {Left: Term{Arm: "a", Metric: "processor"}, Operator: "<=", Factor: 0.5, Right: &Term{Arm: "b", Metric: "processor"}, Plus: -3},
		"a policy/entropy > b policy/entropy":             {Left: Term{Arm: "a", Metric: "policy/entropy"}, Operator: ">", Factor: 1, Right: &Term{Arm: "b", Metric: "policy/entropy"}},
		"a predicted >= a end - 0.02":                     {Left: Term{Arm: "a", Metric: "predicted"}, Operator: ">=", Factor: 1, Right: &Term{Arm: "a", Metric: "end"}, Plus: -0.02},
		"a reward/component/tool > 0.5":                   {Left: Term{Arm: "a", Metric: "reward/component/tool"}, Operator: ">", Factor: 1, Plus: 0.5},
		"a steps to 0.8 < 12":                             {Left: Term{Arm: "a", Metric: "steps", Score: 0.8}, Operator: "<", Factor: 1, Plus: 12},
	} {
		want.Text = text
		got, err := ParseClaim(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, fault := range map[string]string{
		"":                                  "want a metric",
		"a finale >= b final":               `"finale": want a metric`,
		"a policy/entropie > 0":             "want a key of docs/metrics.md, such as policy/entropy",
		"a final = b final":                 `"=": want >=, >, <= or <`,
		"a final >= b final or so":          `"or so" is left over`,
		"a reaches 9 in at most b's steps":  "want a score above 0, at most 1",
		"a reaches 0.9 in at most b steps":  "want the steps of another arm",
		"a reaches 0.9 before b":            `want "in at most"`,
		"a final >= -1 * b final":           "want a positive number",
		"a final >= b final +":              "want a number after + or -",
		"a reaches NaN in at most 30 steps": "want a score above 0, at most 1",
	} {
		_, err := ParseClaim(text)
		require.ErrorContains(t, err, fault, text)
	}
}

func FuzzParseClaim(f *testing.F) {
	f.Add("a reaches 0.9 in at most half of b's steps")
	f.Add("a final >= 0.5 * b final - 0.1")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseClaim(text)
		if err != nil {
			return
		}
		again, err := ParseClaim(c.Text)
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

// run has a curve at the versions 0, 2, 4, ...
func run(final float64, curve ...float64) *Scores {
	s := &Scores{Final: final}
	for i, y := range curve {
		s.curve.X, s.curve.Y = append(s.curve.X, float64(2*i)), append(s.curve.Y, y)
	}
	return s
}

func TestClaimsAreJudged(t *testing.T) {
	t.Parallel()
	scores := map[string]map[int64]*Scores{
		// Every seed differs by more than the arms, and each pair by 0.1: only the pairs decide.
		"a": {1: run(0.3, 0.1, 0.9), 2: run(0.6, 0.1, 0.9), 3: run(0.9, 0.1, 0.9)},
		"b": {1: run(0.2, 0.1, 0.5, 0.6, 0.9), 2: run(0.5, 0.1, 0.5, 0.9), 3: run(0.8, 0.1, 0.2, 0.3, 0.4)},
		"c": {1: run(0.4, 0.1, 0.2), 2: run(0.5, 0.1, 0.2)},
	}
	for text, want := range map[string]string{
		"a final > b final":                          Held,
		"b final >= a final":                         NotHeld,
		"a final >= b final + 0.1001":                NotHeld,
		"a final >= a final":                         Held,
		"a final > a final":                          NotHeld,
		"a final >= 0.6":                             Undecided,
		"a final >= 0.25":                            Held,
		"a reaches 0.9 in at most half of b's steps": Held, // 2 of 6, 2 of 4, and b's third run needs more than 6
		"b reaches 0.9 in at most a's steps":         NotHeld,
		"b reaches 0.9 in at most 30 steps":          Undecided, // one never did
		"c reaches 0.9 in at most b's steps":         Undecided,
	} {
		c, err := ParseClaim(text)
		require.NoError(t, err)
		got := judgeClaim(c, []int64{1, 2, 3}, scores)
		require.Equal(t, want, got.Verdict, "%s: %+v", text, got)
	}
	c, err := ParseClaim("a final > c final")
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, judgeClaim(c, []int64{1, 2, 3}, scores).Seeds, "the third seed has no pair")
	one := judgeClaim(c, []int64{1, 3}, scores)
	require.Equal(t, Undecided, one.Verdict)
	require.Contains(t, one.Why, "of 1 seeds every run is finished")
}

func TestStepsToAScoreAreNoNumberWhereItIsNeverReached(t *testing.T) {
	t.Parallel()
	s := &Scores{curve: report.Series{X: []float64{0, 2}, Y: []float64{0.5, 0.7}}}
	require.Equal(t, exactBounds(2), s.stepsTo(0.7))
	require.InDelta(t, 2, s.stepsTo(0.8).low, 0)
}

// Seconds to a score are those from the first score on, whatever the cold start before it took.
func TestSecondsToAScoreBeginAtTheFirstScore(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int, kind string, score float64) report.Record {
		return report.Record{At: begin.Add(time.Duration(seconds) * time.Second), Type: kind, Metrics: map[string]float64{"eval/exact_match": score}}
	}
	records := []report.Record{at(100, "evaluated", 0.2), at(110, "step_done", 0), at(112, "evaluated", 0.5), at(130, "evaluated", 0.9), at(150, "evaluated", 0.8)}
	s := &Scores{seconds: secondsOf(records), curve: report.Collect(records, "evaluated", "eval/exact_match", "")}
	require.Equal(t, exactBounds(30), s.valueOf(Term{Arm: "a", Metric: "seconds", Score: 0.9}))
	require.Equal(t, exactBounds(12), s.valueOf(Term{Arm: "a", Metric: "seconds", Score: 0.4}))
	require.Equal(t, bounds{50, math.Inf(1)}, s.valueOf(Term{Arm: "a", Metric: "seconds", Score: 0.95}))
	c, err := ParseClaim("a seconds to 0.9 < 0.5 * b seconds to 0.9")
	require.NoError(t, err)
	require.Equal(t, Claim{
		Text: c.Text, Left: Term{Arm: "a", Metric: "seconds", Score: 0.9}, Operator: "<", Factor: 0.5, Right: &Term{Arm: "b", Metric: "seconds", Score: 0.9},
	}, c)
	_, err = ParseClaim("a seconds > 3")
	require.ErrorContains(t, err, `want "to" and a score after seconds`)
}

// At equal tokens runs are compared whose steps have unequal numbers of them.
func TestClaimsAtEqualTokens(t *testing.T) {
	t.Parallel()
	var records []report.Record
	for v, score := range []float64{0.1, 0.2, 0.6, 0.9} {
		if v > 0 {
			records = append(records, report.Record{Type: "step_done", Step: int64(v), Metrics: map[string]float64{"total/tokens": 100 * float64(v)}})
		}
		records = append(records, report.Record{Type: "evaluated", PolicyVersion: int64(v), Metrics: map[string]float64{"eval/exact_match": score}})
	}
	s := &Scores{tokens: tokensOf(records), Tokens: 300, curve: report.Collect(records, "evaluated", "eval/exact_match", "")}
	require.Equal(t, []float64{0, 100, 200, 300}, s.tokens)
	for text, want := range map[string]bounds{
		"a tokens to 0.6 < b tokens to 0.6": exactBounds(200), "a tokens to 0.95 < 9": {300, math.Inf(1)}, "a tokens < 9": exactBounds(300),
		"a score at 299 tokens > 0.5": exactBounds(0.6), "a score at 300 tokens > 0.5": exactBounds(0.9),
		"a score at 301 tokens > 0.5": {math.Inf(-1), math.Inf(1)}, "a area to 301 tokens > 0.5": {math.Inf(-1), math.Inf(1)},
		"a area to 100 tokens > b area to 100 tokens": exactBounds(0.15), "a area to 150 tokens > 0": exactBounds((15 + 15) / 150.),
		"a area to 300 tokens > 0": exactBounds((15 + 40 + 75) / 300.),
	} {
		c, err := ParseClaim(text)
		require.NoError(t, err, text)
		have := s.valueOf(c.Left)
		if math.IsInf(want.low, 0) || math.IsInf(want.high, 0) {
			require.Equal(t, want, have, text)
			continue
		}
		require.InDelta(t, want.low, have.low, 1e-12, text)
		require.InDelta(t, want.high, have.high, 1e-12, text)
	}
	for text, want := range map[string]string{
		"a score > 0.5": `want "at" and a number of tokens`, "a score at 0 tokens > 1": "want a number of tokens", "a area to 5 > 1": "want a number of tokens",
		"a tokens to 2 > 1": "want a score above 0",
	} {
		_, err := ParseClaim(text)
		require.ErrorContains(t, err, want)
	}
}

// A number of the steps is its mean over the last quarter of them: of five steps, the last two.
func TestAClaimCanNameANumberOfTheSteps(t *testing.T) {
	t.Parallel()
	s := &Scores{}
	for _, v := range []float64{9, 9, 9, 2, 4} {
		s.steps = append(s.steps, map[string]float64{"policy/entropy": v})
	}
	require.Equal(t, exactBounds(3), s.valueOf(Term{Metric: "policy/entropy"}))
	c, err := ParseClaim("a policy/entropy > b policy/entropy")
	require.NoError(t, err)
	have := map[string]map[int64]*Scores{"a": {1: s, 2: s}, "b": {1: {}, 2: {}}}
	j := judgeClaim(c, []int64{1, 2}, have)
	require.Equal(t, Undecided, j.Verdict)
	require.Equal(t, "a run lacks the number, or neither run reached the score", j.Why)
}
