package runfolder

import (
	"maps"
	"slices"

	"github.com/weir-rl/weir/trainer/batch"
)

// Distributions are what the archive has of each step's trajectories, those that were not trained on among them. All arrays have an entry for
// each step; they are thinned as Series are.
type Distributions struct {
	Step []int64 `json:"step"`
	// At are the times of the steps' ends, in seconds since the first record of the run.
	At []float64 `json:"at"`
	// Sampled are the sampled tokens of a trajectory, Seconds its duration, Staleness that of those that were trained
	// on: each the quantiles at 0.1, 0.5, 0.9 and 1.
	Sampled   [][]float64 `json:"sampled"`
	Seconds   [][]float64 `json:"seconds"`
	Staleness [][]float64 `json:"staleness"`
	// Solved, Unsolved and Mixed count groups by their rewards.
	Solved   []int `json:"solved"`
	Unsolved []int `json:"unsolved"`
	Mixed    []int `json:"mixed"`
}

// bandQuantiles are the quantiles of Distributions.
var bandQuantiles = []float64{0.1, 0.5, 0.9, 1}

// stepSamples is what is gathered of a step.
type stepSamples struct {
	sampled, seconds, staleness []float64
	ended                       int64
	rewards                     map[key][]float64
}

// Distributions returns the distributions of at most so many steps.
func (f *Folder) Distributions(points int) Distributions {
	top := f.topReward()
	steps := f.Archive.samplesByStep()
	f.Steps.addStaleness(steps)
	began := f.Metrics.firstRecordTime()
	numbers := thinSteps(slices.Sorted(maps.Keys(steps)), points)
	d := Distributions{Step: []int64{}, At: []float64{}, Solved: []int{}, Unsolved: []int{}, Mixed: []int{}}
	d.Sampled, d.Seconds, d.Staleness = [][]float64{}, [][]float64{}, [][]float64{}
	for _, n := range numbers {
		s := steps[n]
		d.Step, d.At = append(d.Step, n), append(d.At, float64(s.ended-began)/1000)
		d.Sampled = append(d.Sampled, quantileBand(s.sampled))
		d.Seconds = append(d.Seconds, quantileBand(s.seconds))
		d.Staleness = append(d.Staleness, quantileBand(s.staleness))
		counts := map[string]int{}
		for _, rewards := range s.rewards {
			kind, _ := kindOfGroup(rewards, top)
			counts[kind]++
		}
		d.Solved = append(d.Solved, counts[GroupSolved])
		d.Unsolved = append(d.Unsolved, counts[GroupUnsolved])
		d.Mixed = append(d.Mixed, counts[GroupMixed])
	}
	return d
}

// samplesByStep gathers the archive's entries by step.
func (f *Archive) samplesByStep() map[int64]*stepSamples {
	f.mu.RLock()
	defer f.mu.RUnlock()
	out := map[int64]*stepSamples{}
	for i := range f.all {
		e := &f.all[i]
		s := out[e.Step]
		if s == nil {
			s = &stepSamples{rewards: map[key][]float64{}}
			out[e.Step] = s
		}
		s.sampled = append(s.sampled, float64(e.Sampled))
		s.ended = max(s.ended, e.Ended)
		if e.Started > 0 && e.Finished >= e.Started {
			s.seconds = append(s.seconds, float64(e.Finished-e.Started)/1000)
		}
		if cursor, attempt, _, ok := batch.ParseTicketID(e.ID); ok {
			k := key{cursor, int32(attempt)}
			s.rewards[k] = append(s.rewards[k], e.Reward)
		}
	}
	return out
}

// addStaleness adds the staleness of what the steps used.
func (x *Steps) addStaleness(steps map[int64]*stepSamples) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := range x.rows {
		r := &x.rows[i]
		if s := steps[int64(r.step)]; s != nil && r.rowStaleness() >= 0 {
			s.staleness = append(s.staleness, float64(r.rowStaleness()))
		}
	}
}

// quantileBand returns the quantiles of values; an empty array where there are none.
func quantileBand(values []float64) []float64 {
	if len(values) == 0 {
		return []float64{}
	}
	slices.Sort(values)
	out := make([]float64, len(bandQuantiles))
	for i, q := range bandQuantiles {
		out[i] = values[int(q*float64(len(values)-1)+0.5)]
	}
	return out
}

// thinSteps keeps every so many-th step, and the last.
func thinSteps(steps []int64, points int) []int64 {
	n := len(steps)
	if points <= 0 || n <= points {
		return steps
	}
	every := (n + points - 1) / points
	out := steps[:0]
	for i, s := range steps {
		if i%every == 0 || i == n-1 {
			out = append(out, s)
		}
	}
	return out
}
