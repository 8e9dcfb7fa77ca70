package bias

import (
	"math"

	"github.com/weir-rl/weir/schemas"
)

// The measures, by which Measures of a Window are indexed, in the order of metrics.BiasKeys.
const (
	Length   = iota // tokens
	Duration        // seconds
	Turns           // calls
	Reward
	measures
)

// Measures has a comparison for each measure.
type Measures [measures]Comparison

// ending is the end of a trajectory.
type ending struct {
	cursor       uint64
	source, task string
	trained      bool
	values       [measures]float64
}

// windowSize is how many of the newest trajectories a Window compares.
const windowSize = 2048

// Window holds the newest trajectories that ended. It draws no random numbers: the same trajectories in the same order give the same
// numbers. It is for one goroutine.
type Window struct {
	ring []ending
	next int
}

// Compared reports whether a trajectory that ended for a reason is compared; "" is trained on. Equal rewards of a group show nothing about
// time, a duplicate was counted before, and a foreign trajectory answers no ticket of the run.
func Compared(reason schemas.Reason) bool {
	switch reason {
	case schemas.ReasonZeroVariance, schemas.ReasonDuplicate, schemas.ReasonForeign:
		return false
	}
	return true
}

// Add takes in a trajectory that ended; reason is "" if it was trained on. source and task are the names that it is compared under; their
// number is the caller's to bound.
func (w *Window) Add(t *schemas.Trajectory, source, task string, reason schemas.Reason) {
	if !Compared(reason) || math.IsNaN(t.Reward) {
		return
	}
	e := ending{cursor: t.Cursor, source: source, task: task, trained: reason == ""}
	e.values = [measures]float64{
		Length: float64(t.Tokens()), Duration: max(0, t.FinishedAt.Sub(t.StartedAt).Seconds()), Turns: float64(len(t.Turns)), Reward: t.Reward,
	}
	w.addEnding(e)
}

// AddUnseen takes in a sample that was cancelled or lost: of it the prompt is known, and how long it was waited for.
func (w *Window) AddUnseen(cursor uint64, source, task string, seconds float64) {
	unknown := math.NaN()
	e := ending{cursor: cursor, source: source, task: task, values: [measures]float64{unknown, unknown, unknown, unknown}}
	e.values[Duration] = max(0, seconds)
	w.addEnding(e)
}

func (w *Window) addEnding(e ending) {
	if len(w.ring) < windowSize {
		w.ring = append(w.ring, e)
		return
	}
	w.ring[w.next] = e
	w.next = (w.next + 1) % windowSize
}

// Compare compares all trajectories of the window.
func (w *Window) Compare() Measures { return w.compareWhere(func(*ending) bool { return true }) }

// BySource compares the trajectories of each source, where there are several.
func (w *Window) BySource() map[string]Measures {
	return w.compareBy(func(e *ending) string { return e.source })
}

// ByTask compares the trajectories of each task, where there are several.
func (w *Window) ByTask() map[string]Measures {
	return w.compareBy(func(e *ending) string { return e.task })
}

// compareBy compares the trajectories of each name, where there are several.
func (w *Window) compareBy(nameOf func(*ending) string) map[string]Measures {
	out := map[string]Measures{}
	for i := range w.ring {
		out[nameOf(&w.ring[i])] = Measures{}
	}
	if len(out) < 2 {
		return nil
	}
	for name := range out {
		out[name] = w.compareWhere(func(e *ending) bool { return nameOf(e) == name })
	}
	return out
}

// compareWhere compares the trajectories for which where is true.
func (w *Window) compareWhere(where func(*ending) bool) (out Measures) {
	var sides [2]struct {
		values  [measures][]float64
		prompts map[uint64]bool
	}
	for i := range w.ring {
		e := &w.ring[i]
		if !where(e) {
			continue
		}
		side := &sides[0]
		if !e.trained {
			side = &sides[1]
		}
		if side.prompts == nil {
			side.prompts = map[uint64]bool{}
		}
		side.prompts[e.cursor] = true
		for m, x := range e.values {
			if math.IsNaN(x) {
				continue
			}
			side.values[m] = append(side.values[m], x)
		}
	}
	for m := range out {
		trained, others := sides[0].values[m], sides[1].values[m]
		if len(trained) == 0 || len(others) == 0 {
			out[m] = Comparison{Trained: len(trained), Others: len(others), P: 1}
			continue
		}
		out[m] = Compare(NewSample(trained, len(sides[0].prompts)), NewSample(others, len(sides[1].prompts)))
	}
	return out
}

// LargestDistance is the greatest distance of a measure that is biased, 0 where none is.
func (m Measures) LargestDistance() (most float64) {
	for _, c := range m {
		if c.Biased() {
			most = max(most, c.Distance)
		}
	}
	return most
}
