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
	metrics := []struct {
		name, unit string
		of         func(*archived) float64
	}{
		{"length", "tokens", func(e *archived) float64 { return float64(e.Tokens) }},
		{"duration", "seconds", func(e *archived) float64 { return float64(e.Finished-e.Started) / 1000 }},
		{"turns", "", func(e *archived) float64 { return float64(e.Turns) }},
	}
	came, trained := make([][]float64, len(metrics)), make([][]float64, len(metrics))
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
		for i, m := range metrics {
			v := m.of(e)
			came[i] = append(came[i], v)
			if is {
				trained[i] = append(trained[i], v)
			}
		}
	}
	for i, m := range metrics {
		if len(trained[i]) == 0 {
			continue
		}
		slices.Sort(came[i])
		slices.Sort(trained[i])
		of := BiasMetric{Name: m.name, Unit: m.unit, Quantiles: quantiles, KS: ksDistance(came[i], trained[i])}
		of.Came, of.Trained = quantilesOf(came[i]), quantilesOf(trained[i])
		n, k := float64(len(came[i])), float64(len(trained[i]))
		of.Bound = 1.63 * math.Sqrt((n+k)/(n*k))
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
