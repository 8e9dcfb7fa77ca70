package compare

import (
	"fmt"
	"math"
)

// The verdicts.
const (
	Held      = "held"
	NotHeld   = "not held"
	Undecided = "undecided"
)

// Judgement is the verdict on a claim.
type Judgement struct {
	Claim   string `json:"claim"`
	Verdict string `json:"verdict"`
	// Margin is the mean, over the seeds, of how far the claim is met: below 0 it is not. Its interval is a paired bootstrap over the seeds.
	// nil is an infinite end, of an arm that never reached the score.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Seeds are the seeds of which every run that the claim needs is finished.
	Seeds []int64 `json:"seeds"`
	// Why explains a claim that cannot be judged.
	Why string `json:"why,omitempty"`
}

// fewestSeeds can be judged: of a single seed there is no interval.
const fewestSeeds = 2

// judgeClaim judges a claim by the runs of the testing seeds: scores has them by arm and seed.
func judgeClaim(c Claim, seeds []int64, scores map[string]map[int64]*Scores) Judgement {
	j := Judgement{Claim: c.Text, Verdict: Undecided, Seeds: []int64{}}
	var low, high []float64
	for _, seed := range seeds {
		margin, ok := c.marginOf(seed, scores)
		if ok {
			j.Seeds, low, high = append(j.Seeds, seed), append(low, margin.low), append(high, margin.high)
		}
	}
	if len(j.Seeds) < fewestSeeds {
		j.Why = fmt.Sprintf("of %d seeds every run is finished; at least %d are needed", len(j.Seeds), fewestSeeds)
		return j
	}
	// The pair of a seed is drawn whole.
	least := bootstrapOne(len(low), func(drawn []int) float64 { return meanOf(pickValues(low, drawn)) }).Low
	most := bootstrapOne(len(high), func(drawn []int) float64 { return meanOf(pickValues(high, drawn)) }).High
	strict := c.Operator == ">" || c.Operator == "<"
	switch {
	case least > 0, least == 0 && !strict:
		j.Verdict = Held
	case most < 0, most == 0 && strict:
		j.Verdict = NotHeld
	}
	j.Low, j.High = finiteOrNil(least), finiteOrNil(most)
	if math.IsInf(least, -1) && math.IsInf(most, 1) {
		j.Why = "a run lacks the number, or neither run reached the score"
	}
	return j
}

// marginOf is how far the claim is met by the runs of a seed; false where a run is missing.
func (c *Claim) marginOf(seed int64, scores map[string]map[int64]*Scores) (bounds, bool) {
	left := scores[c.Left.Arm][seed]
	if left == nil {
		return bounds{}, false
	}
	a, b := left.valueOf(c.Left), exactBounds(0)
	if c.Right != nil {
		right := scores[c.Right.Arm][seed]
		if right == nil {
			return bounds{}, false
		}
		b = right.valueOf(*c.Right)
	}
	b = bounds{c.Factor*b.low + c.Plus, c.Factor*b.high + c.Plus}
	if c.Operator == ">=" || c.Operator == ">" {
		return bounds{a.low - b.high, a.high - b.low}, true
	}
	return bounds{b.low - a.high, b.high - a.low}, true
}

// finiteOrNil is nil for a number that JSON cannot hold.
func finiteOrNil(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}
