package runfolder

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-rl/weir/trainer/archive"
)

// Bias compares the trajectories that came with the trajectories that were trained on: a run that refuses late trajectories trains less on
// slow prompts.
type Bias struct {
	// Came and Trained count the trajectories of the archive that are compared.
	Came    int          `json:"came"`
	Trained int          `json:"trained"`
	Of      []BiasMetric `json:"of"`
	Sources []BiasSource `json:"sources"`
	// Issued are all tickets by source, by the record of steps; Starved a sentence for each source that is trained on far less than it is
	// issued.
	Issued  []SourceIssued `json:"issued"`
	Starved []string       `json:"starved"`
	// Alarm is a sentence about the bias; "" where there is none.
	Alarm string `json:"alarm"`
}

// BiasMetric is a distribution of the trajectories that came, and of the trajectories that were trained on.
type BiasMetric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Came and Trained are the values at the quantiles.
	Quantiles []float64 `json:"quantiles"`
	Came      []float64 `json:"came"`
	Trained   []float64 `json:"trained"`
	// KS is the Kolmogorov-Smirnov distance of the trained trajectories from all that came in time or late, Bound the distance that chance
	// stays below 99 times in 100.
	KS    float64 `json:"ks"`
	Bound float64 `json:"bound"`
}

// BiasSource is a kind of question.
type BiasSource struct {
	Name    string `json:"name"`
	Came    int    `json:"came"`
	Trained int    `json:"trained"`
	// Flat were dropped since their group's rewards are equal, Late refused as stale, Else are all others that were not trained on.
	Flat int `json:"flat"`
	Late int `json:"late"`
	Else int `json:"else"`
	// Reward is the mean of all that came: how hard the questions are.
	Reward float64 `json:"reward"`
}

var quantiles = []float64{0.05, 0.25, 0.5, 0.75, 0.95}

// Bias compares the distributions of the archive. It leaves Issued and Starved to Steps.Sources.
func (f *Archive) Bias() *Bias {
	f.mu.RLock()
	defer f.mu.RUnlock()
	b := &Bias{Of: []BiasMetric{}, Sources: []BiasSource{}}
	measured := []*biasValues{
		{name: "length", unit: "tokens", of: func(e *archived) float64 { return float64(e.Tokens) }},
		{name: "duration", unit: "seconds", of: func(e *archived) float64 { return float64(e.Finished-e.Started) / 1000 }},
		{name: "turns", of: func(e *archived) float64 { return float64(e.Turns) }},
	}
	sources := map[string]*BiasSource{}
	for _, newest := range f.at {
		e := &f.all[newest]
		if e.Fate == archive.FateBaseline {
			continue
		}
		s := sources[e.Source]
		if s == nil {
			s = &BiasSource{Name: e.Source}
			sources[e.Source] = s
		}
		is := s.addEntry(e)
		b.Came++
		if is {
			b.Trained++
		}
		// Equal rewards say nothing of the time: a group that is dropped for them is left out of both sides.
		if e.Reason == "zero_variance" {
			continue
		}
		for _, m := range measured {
			m.addValue(e, is)
		}
	}
	for _, m := range measured {
		if len(m.trained) == 0 {
			continue
		}
		of := m.compareSides()
		if of.KS > max(of.Bound, 0.1) && b.Alarm == "" {
			b.Alarm = "what was trained on differs in " + m.name + " from what came"
		}
		b.Of = append(b.Of, of)
	}
	for _, s := range sources {
		s.Reward /= float64(max(1, s.Came))
		b.Sources = append(b.Sources, *s)
	}
	slices.SortFunc(b.Sources, func(x, y BiasSource) int { return cmp.Compare(x.Name, y.Name) })
	return b
}

// biasValues are the values of a metric for the trajectories that came, and for the trained ones among them.
type biasValues struct {
	name, unit    string
	of            func(*archived) float64
	came, trained []float64
}

// addValue takes in the value of a trajectory.
func (m *biasValues) addValue(e *archived, trained bool) {
	v := m.of(e)
	m.came = append(m.came, v)
	if trained {
		m.trained = append(m.trained, v)
	}
}

// compareSides compares the two distributions; at least one trajectory was trained on.
func (m *biasValues) compareSides() BiasMetric {
	slices.Sort(m.came)
	slices.Sort(m.trained)
	out := BiasMetric{Name: m.name, Unit: m.unit, Quantiles: quantiles, KS: ksDistance(m.came, m.trained)}
	out.Came, out.Trained = quantilesOf(m.came), quantilesOf(m.trained)
	n, k := float64(len(m.came)), float64(len(m.trained))
	out.Bound = 1.63 * math.Sqrt((n+k)/(n*k))
	return out
}

// addEntry counts an entry and says whether it was trained on.
func (s *BiasSource) addEntry(e *archived) bool {
	s.Came++
	s.Reward += e.Reward
	switch {
	case e.Fate == archive.FateTrained:
		s.Trained++
		return true
	case e.Reason == "zero_variance":
		s.Flat++
	case e.Reason == "stale":
		s.Late++
	default:
		s.Else++
	}
	return false
}

// quantilesOf returns the quantiles of sorted values.
func quantilesOf(sorted []float64) []float64 {
	out := make([]float64, len(quantiles))
	for i, q := range quantiles {
		out[i] = sorted[int(q*float64(len(sorted)-1)+0.5)]
	}
	return out
}

// ksDistance returns the greatest difference of the shares at or below a value, of two sorted samples.
func ksDistance(a, b []float64) float64 {
	most, i, k := 0.0, 0, 0
	for i < len(a) && k < len(b) {
		x := min(a[i], b[k])
		for i < len(a) && a[i] <= x {
			i++
		}
		for k < len(b) && b[k] <= x {
			k++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(k)/float64(len(b))))
	}
	return most
}
