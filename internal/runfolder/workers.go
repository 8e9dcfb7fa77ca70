package runfolder

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Worker is a process of the run, by its events. The times are the broker's, when it stored the events.
type Worker struct {
	Role   string    `json:"role"`
	Name   string    `json:"name"`
	State  string    `json:"state"` // WorkerHere, WorkerSilent or WorkerLeft
	Since  time.Time `json:"since"`
	Heard  time.Time `json:"heard"`
	Events int       `json:"events"`
	// Version is the newest that it told of, Lag how long after its publication it applied it, in seconds.
	Version *int64   `json:"version,omitempty"`
	Lag     *float64 `json:"lag,omitempty"`

	// Joined is when it came; the zero time where that event is not among the events that are read.
	Joined time.Time `json:"-"`

	// again is the time within which it promised its next event; 0 where it promised none.
	again time.Duration
}

// The states of a worker.
const (
	WorkerHere = "here"
	// WorkerSilent has not said that it leaves, and has not told of itself for three times as long as it promised: it was killed, it
	// froze, or it has lost the broker.
	WorkerSilent = "silent"
	// WorkerLeft said that it leaves.
	WorkerLeft = "left"
)

// promises is how many promises to tell of itself a worker breaks before it is silent.
const promises = 3

// The roles of workers, as their events name them.
const (
	RoleTrainer   = "trainer"
	RoleInference = "inference"
	RoleProducer  = "producer"
	RoleTools     = "tools"
	RoleArchive   = "archive"
	// RoleOperator is the role of acts.
	RoleOperator = "operator"
)

// workers are the workers of the events, by role and name.
type workers map[string]*Worker

// addEvent takes in an event that the broker stored at a time.
func (all workers) addEvent(e *schemas.Event, stored time.Time) {
	if e.Worker == "" {
		return
	}
	at := e.Role + "/" + e.Worker
	w := all[at]
	if w == nil {
		w = &Worker{Role: e.Role, Name: e.Worker, State: WorkerHere, Since: stored}
		all[at] = w
	}
	w.Heard = stored
	w.Events++
	if again := promisedAgain(e); again > 0 {
		w.again = again
	}
	switch e.Type {
	case schemas.EventWorkerJoined:
		w.State, w.Since, w.Joined = WorkerHere, stored, stored
	case schemas.EventWorkerLeft:
		w.State, w.Since = WorkerLeft, stored
	case schemas.EventVersionApplied:
		version, lag := e.PolicyVersion, finiteOr0(e.Metrics["weights_lag_seconds"])
		w.Version, w.Lag = &version, &lag
	}
}

// states are in the order of a list.
var states = []string{WorkerSilent, WorkerHere, WorkerLeft}

// listWorkers returns the workers as they stand at an instant of the broker's clock: the silent first, then the present, by role and name.
func (all workers) listWorkers(now time.Time) []Worker {
	out := make([]Worker, 0, len(all))
	for _, w := range all {
		is := *w
		if is.State == WorkerHere && is.again > 0 && now.Sub(is.Heard) > promises*is.again {
			is.State, is.Since = WorkerSilent, is.Heard
		}
		out = append(out, is)
	}
	slices.SortFunc(out, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// promisedAgain returns within what time the worker of an event promised its next; 0 or less where it promised none.
func promisedAgain(e *schemas.Event) time.Duration {
	return time.Duration(min(finiteOr0(e.Metrics[schemas.MetricAgain]), time.Hour.Seconds()) * float64(time.Second))
}

// finiteOr0 returns x, or 0 where JSON has no number for it.
func finiteOr0(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
