package report

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// stepsOf are records of steps with these rewards, each with a spread of 0.4 within its batch.
func stepsOf(rewards ...float64) []Record {
	var out []Record
	for i, r := range rewards {
		out = append(out, Record{Step: int64(i + 1), Metrics: map[string]float64{"reward/mean": r, "reward/std": 0.4}})
	}
	return out
}

// scoresOf are records of scores over n questions.
func scoresOf(n float64, scores ...float64) []Record {
	var out []Record
	for i, s := range scores {
		out = append(out, Record{PolicyVersion: int64(i), Metrics: map[string]float64{"eval/exact_match": s, "eval/questions": n}})
	}
	return out
}

// ramp goes from a to b in n points that wobble by noise.
func ramp(n int, a, b, noise float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = a + (b-a)*float64(i)/float64(max(1, n-1)) + noise*math.Sin(float64(7*i))
	}
	return out
}

func TestTheVerdictOnARun(t *testing.T) {
	t.Parallel()
	fails := []Failure{{Task: "a", Failed: 3, Last: "agent mine answers 500"}, {Task: "b", Failed: 34, Last: "reward service answers 503: no model"}}
	rising := stepsOf(ramp(48, 0.3, 0.95, 0.02)...)
	upDown := stepsOf(append(ramp(30, 0.3, 0.9, 0.02), ramp(30, 0.9, 0.4, 0.02)...)...)
	for name, c := range map[string]struct {
		course Course
		kind   VerdictKind
		text   string
	}{
		"nothing yet":                 {Course{}, VerdictEarly, "Too early to tell: no step is done yet"},
		"a score before the steps":    {Course{Scores: scoresOf(160, 0.2)}, VerdictEarly, "Too early to tell: no step is done yet; held-out 0.20"},
		"one step":                    {Course{Steps: stepsOf(0.3)}, VerdictEarly, "Too early to tell: reward 0.30 after 1 step"},
		"few steps that rise":         {Course{Steps: stepsOf(ramp(7, 0.3, 0.9, 0)...)}, VerdictEarly, "Too early to tell: reward 0.75 after 7 steps"},
		"few steps and a score":       {Course{Steps: stepsOf(0.3, 0.5), Scores: scoresOf(160, 0.2, 0.6)}, VerdictLearning, "Learning: reward 0.40 after 2 steps; held-out 0.20 -> 0.60"},
		"reward and score rise":       {Course{Steps: rising, Scores: scoresOf(160, 0.2, 0.98)}, VerdictLearning, "Learning: reward 0.36 -> 0.89 in 48 steps; held-out 0.20 -> 0.98"},
		"no score":                    {Course{Steps: rising}, VerdictLearning, "Learning: reward 0.36 -> 0.89 in 48 steps"},
		"ended and tested":            {Course{Ended: true, Steps: rising, Tested: &Record{Metrics: map[string]float64{"test/exact_match_greedy": 0.954}}}, VerdictLearning, "Learned: reward 0.36 -> 0.89 in 48 steps; test 0.95"},
		"stopped":                     {Course{Stopped: true, Steps: rising}, VerdictLearning, "Learning: reward 0.36 -> 0.89 in 48 steps; stopped after step 48"},
		"by heart":                    {Course{Steps: rising, Scores: scoresOf(160, 0.2, 0.22)}, VerdictRewardOnly, "Only the reward rises: reward 0.36 -> 0.89 in 48 steps; held-out stays at 0.22"},
		"too few questions":           {Course{Steps: rising, Scores: scoresOf(8, 0.125, 0.25)}, VerdictLearning, "Learning: reward 0.36 -> 0.89 in 48 steps; held-out 0.25 of 8 questions"},
		"only the score rises":        {Course{Steps: stepsOf(ramp(40, 0.5, 0.5, 0.05)...), Scores: scoresOf(160, 0.2, 0.7)}, VerdictLearning, "Learning: reward 0.50 -> 0.50 in 40 steps; held-out 0.20 -> 0.70"},
		"neither moves":               {Course{Steps: stepsOf(ramp(40, 0.31, 0.31, 0.05)...), Scores: scoresOf(160, 0.2, 0.21)}, VerdictFlat, "Not learning: reward 0.31 -> 0.31 in 40 steps, no more than its noise; held-out stays at 0.21"},
		"neither moved, and it ended": {Course{Ended: true, Steps: stepsOf(ramp(40, 0, 0, 0)...)}, VerdictFlat, "Did not learn: reward 0.00 -> 0.00 in 40 steps, no more than its noise"},
		"far less than its spread":    {Course{Steps: stepsOf(ramp(40, 0.3, 0.31, 0)...)}, VerdictFlat, "Not learning: reward 0.30 -> 0.31 in 40 steps, no more than its noise"},
		"high from the start":         {Course{Steps: stepsOf(ramp(40, 0.97, 0.97, 0.01)...), Scores: scoresOf(160, 0.97, 0.98)}, VerdictSolved, "Solved from the start: reward 0.97 -> 0.97 in 40 steps; held-out 0.98"},
		"the reward falls":            {Course{Steps: stepsOf(ramp(40, 0.9, 0.2, 0.02)...)}, VerdictFalling, "Getting worse: reward 0.84 -> 0.26 in 40 steps"},
		"the score falls":             {Course{Steps: rising, Scores: scoresOf(160, 0.8, 0.3)}, VerdictFalling, "Getting worse: reward 0.36 -> 0.89 in 48 steps; held-out 0.80 -> 0.30"},
		"it fell back":                {Course{Steps: upDown}, VerdictFalling, "Getting worse: reward 0.42 -> 0.86 at step 37 -> 0.50 in 60 steps"},
		"failures before a step":      {Course{Failures: fails}, VerdictStuck, "Stuck: 37 rollouts failed: reward service answers 503: no model"},
		"few failures":                {Course{Failures: fails[:1]}, VerdictEarly, "Too early to tell: no step is done yet"},
		"failures beside steps":       {Course{Failures: fails, Steps: rising}, VerdictLearning, "Learning: reward 0.36 -> 0.89 in 48 steps"},
		"failures and no steps since": {Course{Failures: fails, Steps: rising, Quiet: "no step since 3m0s"}, VerdictStuck, "Stuck: 37 rollouts failed: reward service answers 503: no model"},
		"no step for long":            {Course{Steps: rising, Quiet: "no step since 3m0s"}, VerdictStuck, "Stuck: no step since 3m0s"},
		"ended with failures":         {Course{Ended: true, Steps: rising, Failures: fails}, VerdictLearning, "Learned: reward 0.36 -> 0.89 in 48 steps"},
		"spoiled":                     {Course{Spoiled: "sampler and trainer disagree", Steps: rising}, VerdictSpoiled, "Spoiled: sampler and trainer disagree"},
		"a great reward":              {Course{Steps: stepsOf(ramp(48, 300, 900, 1)...)}, VerdictLearning, "Learning: reward 351 -> 849 in 48 steps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := Judge(c.course)
			require.Equal(t, c.kind, v.Kind)
			require.Equal(t, c.text, v.Text)
		})
	}
}

// A reward that only wobbles is never called learning, whatever its level, and a verdict is always a sentence.
func TestNoiseIsNotLearning(t *testing.T) {
	t.Parallel()
	wrong := 0
	for seed := range 200 {
		var rewards []float64
		x := uint64(seed)*2654435761 + 1
		for range 60 {
			x = x*6364136223846793005 + 1442695040888963407
			rewards = append(rewards, 0.4+0.1*(float64(x>>40)/float64(1<<24)-0.5))
		}
		if Judge(Course{Steps: stepsOf(rewards...)}).Kind != VerdictFlat {
			wrong++
		}
	}
	require.LessOrEqual(t, wrong, 4, "of 200 runs of noise")
	rapid.Check(t, func(t *rapid.T) {
		rewards := rapid.SliceOfN(rapid.Float64Range(-1e3, 1e3), 0, 40).Draw(t, "rewards")
		scores := rapid.SliceOfN(rapid.Float64Range(0, 1), 0, 5).Draw(t, "scores")
		v := Judge(Course{Steps: stepsOf(rewards...), Scores: scoresOf(20, scores...), Ended: rapid.Bool().Draw(t, "ended")})
		require.NotEmpty(t, v.Kind)
		require.NotContains(t, v.Text, "NaN")
	})
}

// Row 8: a short run whose held-out score stays at chance is not called learning, whatever the share that chance gives and however few the
// questions; a short run that learned is.
func TestAShortRunAtChanceHasNotLearned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		questions   float64
		first, last float64
		kind        VerdictKind
	}{
		"two sigmas above the start": {160, 0.25, 0.36, VerdictFlat},
		"chance, few questions":      {20, 0.2, 0.5, VerdictFlat},
		"learned":                    {160, 0.2, 0.6, VerdictLearning},
		"fell by its noise":          {160, 0.36, 0.25, VerdictFlat},
	} {
		v := Judge(Course{Ended: true, Steps: stepsOf(ramp(12, 0.3, 0.3, 0.05)...), Scores: scoresOf(c.questions, c.first, c.last)})
		require.Equal(t, c.kind, v.Kind, "%s: %s", name, v.Text)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(8, 400).Draw(t, "questions")
		chance := rapid.Float64Range(0.05, 0.6).Draw(t, "chance")
		wrong := 0
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		draw := func(trials int) float64 {
			hits := 0
			for range trials {
				if rng.Float64() < chance {
					hits++
				}
			}
			return float64(hits) / float64(trials)
		}
		for range 100 {
			steps := rng.IntN(20) + 1
			rewards := make([]float64, steps)
			for i := range rewards {
				rewards[i] = draw(64)
			}
			if v := Judge(Course{Ended: true, Steps: stepsOf(rewards...), Scores: scoresOf(float64(n), draw(n), draw(n))}); v.Kind == VerdictLearning {
				wrong++
			}
		}
		if wrong > 8 {
			t.Fatalf("%d of 100 runs at chance %.2f with %d questions are called learning", wrong, chance, n)
		}
	})
}
