package compare

import (
	"errors"
	"math"
	"slices"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// The metrics at equal numbers of tokens trained on.
const (
	metricTokens     = "tokens"
	metricTokensTo   = "tokens to" // a score
	metricScoreAt    = "score at"
	metricAreaTokens = "area to"
)

// parseTokens reads what follows ARM tokens, ARM score or ARM area, where that is a metric at a number of tokens.
func (p *claimParser) parseTokens(t *Term) (read bool, err error) {
	switch {
	case t.Metric == metricTokens && p.takeWords("to"):
		t.Metric = metricTokensTo
		t.Score, err = p.parseScore()
		return true, err
	case t.Metric == "score":
		t.Metric = metricScoreAt
		if !p.takeWords("at") {
			return true, errors.New(`want "at" and a number of tokens after score`)
		}
	case t.Metric == "area" && p.takeWords("to"):
		t.Metric = metricAreaTokens
	default:
		return false, nil
	}
	n, ok := p.takeNumber()
	if !ok || n <= 0 || !p.takeWords("tokens") {
		return true, errors.New("want a number of tokens, such as 400000 tokens")
	}
	t.Tokens = n
	return true, nil
}

// tokensOf are the tokens trained on before each score on the validation split.
func tokensOf(records []report.Record) (out []float64) {
	at := map[int64]float64{}
	for _, rec := range records {
		if rec.Type == string(schemas.EventStepDone) {
			at[rec.Step] = rec.Metrics[metrics.TotalTokens.Name]
		}
	}
	for _, rec := range records {
		if _, ok := rec.Metrics[metrics.EvalExactMatch.Name]; ok && rec.Type == string(schemas.EventEvaluated) {
			out = append(out, at[rec.PolicyVersion])
		}
	}
	return out
}

// tokensTo are the tokens trained on before the first scored version with at least a score, as stepsTo counts its steps.
func (s *Scores) tokensTo(score float64) bounds {
	at := slices.IndexFunc(s.curve.Y, func(y float64) bool { return y >= score })
	if at < 0 {
		return bounds{s.tokens[len(s.tokens)-1], math.Inf(1)}
	}
	return exactBounds(s.tokens[at])
}

// scoreAt is the score of the newest scored version that at most n tokens were trained on; false of a run that ended with fewer.
func (s *Scores) scoreAt(n float64) (float64, bool) {
	score := math.NaN()
	for i, tokens := range s.tokens {
		if tokens <= n {
			score = s.curve.Y[i]
		}
	}
	return score, s.Tokens >= n && !math.IsNaN(score)
}

// areaTo is the mean score over the first n tokens, on straight lines between the scored versions; false of a run that ended with fewer.
func (s *Scores) areaTo(n float64) (float64, bool) {
	sum := 0.0
	for i := 1; i < len(s.tokens); i++ {
		from, to := s.tokens[i-1], s.tokens[i]
		a, b := s.curve.Y[i-1], s.curve.Y[i]
		if from >= n || to <= from {
			continue
		}
		if to > n {
			b = a + (b-a)*(n-from)/(to-from)
			to = n
		}
		sum += (to - from) * (a + b) / 2
	}
	return sum / n, len(s.tokens) > 0 && s.tokens[len(s.tokens)-1] >= n
}
