package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Failures are the episodes that fail now, by the events of the producers. Its zero value has none. It is not safe for concurrent use.
type Failures struct{ by map[failureKey]failure }

type failureKey struct{ worker, task string }

type failure struct {
	schemas.Failing
	at time.Time
}

// Failure tells how the episodes of a task fail, at all producers together.
type Failure struct {
	Task string `json:"task"`
	// Failed and Succeeded count the attempts since the failures began, ByCause the failed ones by their cause.
	Failed    int            `json:"failed"`
	Succeeded int            `json:"succeeded"`
	ByCause   map[string]int `json:"by_cause"`
	// Last are the newest failure's own words, At is when they were reported.
	Last string    `json:"last"`
	At   time.Time `json:"at"`
}

// AddEvent takes in the next event of a run, and returns whether it changed anything.
func (f *Failures) AddEvent(e *schemas.Event) (changed bool) {
	switch e.Type {
	case schemas.EventFailing:
		if f.by == nil {
			f.by = map[failureKey]failure{}
		}
		told, _ := schemas.FailingOf(e)
		key := failureKey{e.Worker, told.Task}
		if told.Over {
			delete(f.by, key)
			return true
		}
		f.by[key] = failure{told, e.At}
		return true
	case schemas.EventWorkerJoined, schemas.EventWorkerLeft:
		before := len(f.by)
		maps.DeleteFunc(f.by, func(key failureKey, _ failure) bool { return key.worker == e.Worker && e.Role == "producer" })
		return len(f.by) < before
	}
	return false
}

// List returns the tasks whose episodes fail, those with the most failures first.
func (f *Failures) List() []Failure {
	byTask := map[string]*Failure{}
	for key, one := range f.by {
		all := byTask[key.task]
		if all == nil {
			all = &Failure{Task: key.task, ByCause: map[string]int{}}
			byTask[key.task] = all
		}
		all.Failed += one.Failed
		all.Succeeded += one.Succeeded
		for cause, n := range one.ByCause {
			all.ByCause[cause] += n
		}
		if all.At.Before(one.at) {
			all.At, all.Last = one.at, one.Last
		}
	}
	out := make([]Failure, 0, len(byTask))
	for _, all := range byTask {
		out = append(out, *all)
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Task, b.Task))
	})
	return out
}

// Clone returns a copy.
func (f *Failures) Clone() Failures { return Failures{maps.Clone(f.by)} }

// String tells of the failures in a sentence.
func (f Failure) String() string {
	causes := slices.SortedFunc(maps.Keys(f.ByCause), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.ByCause[b], f.ByCause[a]), cmp.Compare(a, b))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "task %s: ", f.Task)
	if f.Succeeded == 0 {
		b.WriteString("no episode succeeds: ")
	}
	fmt.Fprintf(&b, "%d of %d failed", f.Failed, f.Failed+f.Succeeded)
	if len(causes) > 1 {
		for i, cause := range causes {
			causes[i] = fmt.Sprintf("%s %d", cause, f.ByCause[cause])
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(causes, ", "))
	}
	fmt.Fprintf(&b, "; the last: %s", Plain(f.Last))
	return b.String()
}
