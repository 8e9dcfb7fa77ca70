package compare

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Scores are the numbers of a finished run. A score is a share of questions answered rightly, in [0, 1].
type Scores struct {
	// Start and End are the first and the last greedy score on the validation split, Area is the mean score from the first to the last
	// scored version, and Fall the largest fall of the score below an earlier one.
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Area  float64 `json:"area"`
	Fall  float64 `json:"fall"`
	// Final and Sampled are the last version's scores on the test split, greedy and at temperature 1.
	Final   float64 `json:"final"`
	Sampled float64 `json:"sampled"`
	// Tokens are the tokens that were trained on.
	Tokens float64 `json:"tokens"`
	Spent
	// Predicted is the last greedy score on the validation split as a sigmoid through the first half of the curve has it (ScaleRL, arXiv
	// 2510.13786); nil where that half has fewer than five scored versions.
	Predicted *float64 `json:"predicted,omitempty"`
	// seconds are those from the first score to the score of each version of curve, with the pauses of a run that was interrupted.
	seconds []float64
	// tokens are those trained on before the score of each version of curve.
	tokens []float64
	// curve is the greedy score on the validation split over the versions.
	curve report.Series
	// steps are the numbers of the steps, in order.
	steps []map[string]float64
}

// bounds hold a number that need not be known exactly.
type bounds struct{ low, high float64 }

func exactBounds(v float64) bounds { return bounds{v, v} }

// knownBounds are those of a number that a run may lack.
func knownBounds(v float64, ok bool) bounds {
	if !ok {
		return bounds{math.Inf(-1), math.Inf(1)}
	}
	return exactBounds(v)
}

// readScores reads the numbers of a finished run.
func readScores(r *Run) (*Scores, error) {
	records, err := r.records()
	if err != nil {
		return nil, err
	}
	learning, ok := report.ReadLearning(records)
	if !ok {
		return nil, fmt.Errorf("run %s: fewer than two versions were scored: lower eval.every or raise trainer.steps", r.Name)
	}
	s := &Scores{
		Start: learning.Start, End: learning.End, Area: learning.Area, Final: math.NaN(), Sampled: math.NaN(),
		curve: report.Collect(records, string(schemas.EventEvaluated), metrics.EvalExactMatch.Name, r.Arm),
	}
	if v, ok := predictEnd(s.curve); ok {
		s.Predicted = &v
	}
	s.seconds, s.tokens = secondsOf(records), tokensOf(records)
	best := 0.0
	for _, y := range s.curve.Y {
		best = max(best, y)
		s.Fall = max(s.Fall, best-y)
	}
	for _, rec := range records {
		switch rec.Type {
		case report.Tested:
			if v, ok := rec.Metrics[metrics.TestExactMatchGreedy.Name]; ok {
				s.Final = v
			}
			if v, ok := rec.Metrics[metrics.TestExactMatchSampled.Name]; ok {
				s.Sampled = v
			}
		case string(schemas.EventStepDone):
			s.steps = append(s.steps, rec.Metrics)
			s.Tokens = max(s.Tokens, rec.Metrics[metrics.TotalTokens.Name])
		}
	}
	if math.IsNaN(s.Final) || math.IsNaN(s.Sampled) {
		return nil, fmt.Errorf("run %s has no score on the test split: give its tasks test questions and eval.test_questions", r.Name)
	}
	s.Spent, err = readSpent(r)
	return s, err
}

// secondsOf are the seconds from the first score on the validation split to each.
func secondsOf(records []report.Record) (out []float64) {
	var first time.Time
	for _, rec := range records {
		if _, ok := rec.Metrics[metrics.EvalExactMatch.Name]; !ok || rec.Type != string(schemas.EventEvaluated) {
			continue
		}
		if len(out) == 0 {
			first = rec.At
		}
		out = append(out, rec.At.Sub(first).Seconds())
	}
	return out
}

// stepsTo is the first scored version with at least a score. Of a run that never has it, the number is above its last version.
func (s *Scores) stepsTo(score float64) bounds {
	at := slices.IndexFunc(s.curve.Y, func(y float64) bool { return y >= score })
	if at < 0 {
		return bounds{s.curve.X[len(s.curve.X)-1], math.Inf(1)}
	}
	return exactBounds(s.curve.X[at])
}

// secondsTo are the seconds to the first scored version with at least a score, as stepsTo counts its steps.
func (s *Scores) secondsTo(score float64) bounds {
	at := slices.IndexFunc(s.curve.Y, func(y float64) bool { return y >= score })
	if at < 0 {
		return bounds{s.seconds[len(s.seconds)-1], math.Inf(1)}
	}
	return exactBounds(s.seconds[at])
}

// valueOf is the value of a claim's term.
func (s *Scores) valueOf(t Term) bounds {
	switch t.Metric {
	case metricSteps:
		return s.stepsTo(t.Score)
	case metricSeconds:
		return s.secondsTo(t.Score)
	case metricTokensTo:
		return s.tokensTo(t.Score)
	case metricScoreAt:
		return knownBounds(s.scoreAt(t.Tokens))
	case metricAreaTokens:
		return knownBounds(s.areaTo(t.Tokens))
	case "final":
		return exactBounds(s.Final)
	case "sampled":
		return exactBounds(s.Sampled)
	case "area":
		return exactBounds(s.Area)
	case "start":
		return exactBounds(s.Start)
	case "end":
		return exactBounds(s.End)
	case "predicted":
		if s.Predicted != nil {
			return exactBounds(*s.Predicted)
		}
	case "fall":
		return exactBounds(s.Fall)
	case "tokens":
		return exactBounds(s.Tokens)
	case "processor":
		return exactBounds(s.ProcessorSeconds)
	}
	return knownBounds(s.lateMean(t.Metric))
}

// lateMean is the mean of a step's number over the last quarter of the steps, rounded up; false where none of these steps has it.
func (s *Scores) lateMean(key string) (float64, bool) {
	var values []float64
	for _, step := range s.steps[len(s.steps)*3/4:] {
		if v, ok := step[key]; ok {
			values = append(values, v)
		}
	}
	return meanOf(values), len(values) > 0
}
