package runfolder

import (
	"cmp"
	"slices"

	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/bias"
)

// Bias compares the trajectories that came with the trajectories that were trained on: a run that refuses late trajectories trains less on
// slow prompts.
type Bias struct {
	// Came and Trained count the trajectories of the archive that are compared.
	Came    int          `json:"came"`
	Trained int          `json:"trained"`
	Of      []BiasMetric `json:"of"`
	Sources []BiasSource `json:"sources"`
	// Tasks are the same by task; empty in a run of a single task.
	Tasks []BiasSource `json:"tasks"`
	// Causes are the trajectories that were not trained on, by the reason.
	Causes []BiasCause `json:"causes"`
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
	// KS is the Kolmogorov-Smirnov distance of the trained trajectories from all that came, P its probability if the measure had nothing
	// to do with what became of a trajectory: see bias.Compare.
	KS float64 `json:"ks"`
	P  float64 `json:"p"`
	// Differs is set where the distance matters and is no chance.
	Differs bool `json:"differs"`
}

// BiasCause is a reason for which trajectories that came were not trained on.
type BiasCause struct {
	Reason string `json:"reason"`
	Came   int    `json:"came"`
	// Length, Duration, Turns are medians, Reward is a mean.
	Length   float64 `json:"length"`
	Duration float64 `json:"duration"`
	Turns    float64 `json:"turns"`
	Reward   float64 `json:"reward"`
}

// BiasSource is a kind of question, or a task.
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
	// Differs is the measure in which the trained trajectories differ most from all, "" where they do not; KS is its distance, P its
	// probability.
	Differs string  `json:"differs"`
	KS      float64 `json:"ks"`
	P       float64 `json:"p"`
	values  []*biasValues
}

var quantiles = []float64{0.05, 0.25, 0.5, 0.75, 0.95}

// Bias compares the distributions of the archive. It leaves Issued and Starved to Steps.Sources.
func (f *Archive) Bias() *Bias {
	f.mu.RLock()
	defer f.mu.RUnlock()
	b := &Bias{Of: []BiasMetric{}}
	all := newBiasValues()
	sources, tasks, causes := map[string]*BiasSource{}, map[string]*BiasSource{}, map[string]*biasCause{}
	for _, newest := range f.at {
		e := f.decidingEntry(newest)
		if e.Fate == archive.FateBaseline {
			continue
		}
		trained := namedSource(sources, e.Source).addEntry(e)
		namedSource(tasks, e.Task).addEntry(e)
		b.Came++
		if trained {
			b.Trained++
		} else {
			addCause(causes, e)
		}
		// Equal rewards say nothing of the time, and samples are passed over for their rewards: both sides go without.
		if !bias.Compared(e.Reason) || e.Fate == archive.FatePassedOver {
			continue
		}
		cursor, _ := sampleOf(e.ID)
		for _, values := range [][]*biasValues{all, sources[e.Source].values, tasks[e.Task].values} {
			for _, m := range values {
				m.addValue(e, cursor, trained)
			}
		}
	}
	for _, m := range all {
		if len(m.trained) == 0 {
			continue
		}
		of := m.compareSides()
		if of.Differs && b.Alarm == "" {
			b.Alarm = "what was trained on differs in " + m.name + " from what came"
		}
		b.Of = append(b.Of, of)
	}
	b.Sources, b.Tasks, b.Causes = sortedSources(sources), []BiasSource{}, sortedCauses(causes)
	if len(tasks) > 1 {
		b.Tasks = sortedSources(tasks)
	}
	return b
}

func namedSource(of map[string]*BiasSource, name string) *BiasSource {
	s := of[name]
	if s == nil {
		s = &BiasSource{Name: name, P: 1, values: newBiasValues()}
		of[name] = s
	}
	return s
}

// sortedSources completes the sources and sorts them by name.
func sortedSources(of map[string]*BiasSource) []BiasSource {
	out := []BiasSource{}
	for _, s := range of {
		s.Reward /= float64(max(1, s.Came))
		for _, m := range s.values {
			if c := m.compare(); c.Biased() && c.Distance > s.KS {
				s.Differs, s.KS, s.P = m.name, c.Distance, c.P
			}
		}
		out = append(out, *s)
	}
	slices.SortFunc(out, func(x, y BiasSource) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// biasCause gathers the trajectories of a cause.
type biasCause struct {
	values []*biasValues
	reward float64
}

func addCause(causes map[string]*biasCause, e *archived) {
	name := cmp.Or(string(e.Reason), e.Fate)
	c := causes[name]
	if c == nil {
		c = &biasCause{values: newBiasValues()}
		causes[name] = c
	}
	for _, m := range c.values {
		m.others = append(m.others, m.of(e))
	}
	c.reward += e.Reward
}

// sortedCauses returns the causes by their number, the commonest first.
func sortedCauses(of map[string]*biasCause) []BiasCause {
	out := []BiasCause{}
	for reason, c := range of {
		n := len(c.values[bias.Length].others)
		median := func(measure int) float64 {
			slices.Sort(c.values[measure].others)
			return quantilesOf(c.values[measure].others)[len(quantiles)/2]
		}
		out = append(out, BiasCause{reason, n, median(bias.Length), median(bias.Duration), median(bias.Turns), c.reward / float64(n)})
	}
	slices.SortFunc(out, func(x, y BiasCause) int { return cmp.Or(cmp.Compare(y.Came, x.Came), cmp.Compare(x.Reason, y.Reason)) })
	return out
}

// biasValues are the values of a measure for the trajectories that were trained on, and for the others that came.
type biasValues struct {
	name, unit      string
	of              func(*archived) float64
	trained, others []float64
	// prompts are the prompts of either side.
	prompts [2]map[uint64]bool
}

// newBiasValues returns the measures, in the order of package bias.
func newBiasValues() []*biasValues {
	return []*biasValues{
		{name: "length", unit: "tokens", of: func(e *archived) float64 { return float64(e.Tokens) }},
		{name: "duration", unit: "seconds", of: func(e *archived) float64 { return float64(e.Finished-e.Started) / 1000 }},
		{name: "turns", of: func(e *archived) float64 { return float64(e.Turns) }},
		{name: "reward", of: func(e *archived) float64 { return e.Reward }},
	}
}

// addValue takes in the value of a trajectory.
func (m *biasValues) addValue(e *archived, of sampleKey, trained bool) {
	values, side := &m.others, 1
	if trained {
		values, side = &m.trained, 0
	}
	*values = append(*values, m.of(e))
	if m.prompts[side] == nil {
		m.prompts[side] = map[uint64]bool{}
	}
	m.prompts[side][of.cursor] = true
}

// compare compares the trained trajectories with all.
func (m *biasValues) compare() bias.Comparison {
	return bias.Compare(bias.NewSample(m.trained, len(m.prompts[0])), bias.NewSample(m.others, len(m.prompts[1])))
}

// compareSides compares the two distributions; at least one trajectory was trained on.
func (m *biasValues) compareSides() BiasMetric {
	c := m.compare()
	came := slices.Concat(m.trained, m.others)
	slices.Sort(came)
	return BiasMetric{
		Name: m.name, Unit: m.unit, Quantiles: quantiles, Came: quantilesOf(came), Trained: quantilesOf(m.trained),
		KS: c.Distance, P: c.P, Differs: c.Biased(),
	}
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
