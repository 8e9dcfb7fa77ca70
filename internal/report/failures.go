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

// Failures are the episodes that fail now, by the events of a run. Its zero value has none. It is not safe for concurrent use.
//
// A producer's failures are over when it reports that, when a producer of its name joins, and when a trainer joins. Those of a producer that
// left, or that is silent while others are heard of, stand until a step is done: they say why the run stopped.
type Failures struct {
	by map[failureKey]failure
	// heard is when the producers with failures were heard of last; the zero time where one has left.
	heard map[string]time.Time
}

// silentAfter is how long after its last event a producer counts as gone: it tells of itself every half minute.
const silentAfter = 2 * time.Minute

// A stranger's events may name any number of tasks, producers and causes. Beyond these bounds nothing further is kept: of tasks, of spells
// of all producers together, and of the causes of a spell. A name is cut after mostName bytes.
const (
	mostTasks  = 64
	mostSpells = 1024
	mostCauses = 16
	mostName   = 100
)

// failureKey names a spell.
type failureKey struct {
	worker, task string
	kind         schemas.FailingKind
}

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
	// Late counts requests of agents after the end of their episodes; then Failed and Succeeded count nothing, and Last is the newest
	// request.
	Late int `json:"late"`
	// Overdue counts running episodes that do not end, and Last tells of the oldest. Limited counts trajectories that a limit ended, of the
	// newest Ended, and Last has the agent and the limit. A failure with one of them counts nothing else.
	Overdue int `json:"overdue"`
	Limited int `json:"limited"`
	Ended   int `json:"ended"`
	// Last are the newest failure's own words, At is when they were reported.
	Last string    `json:"last"`
	At   time.Time `json:"at"`
}

// AddEvent takes in the next event of a run, and returns whether it changed anything.
func (f *Failures) AddEvent(e *schemas.Event) (changed bool) {
	producer := e.Role == "producer"
	if _, failing := f.heard[e.Worker]; failing && producer {
		f.heard[e.Worker] = e.At
	}
	switch {
	case e.Type == schemas.EventFailing:
		return f.addFailing(e)
	case e.Type == schemas.EventWorkerJoined && producer:
		return f.dropWhere(func(worker string) bool { return worker == e.Worker })
	case e.Type == schemas.EventWorkerJoined && e.Role == "trainer":
		return f.dropWhere(func(string) bool { return true })
	case e.Type == schemas.EventWorkerLeft && producer:
		changed = f.dropOverdue(e.Worker)
		if _, failing := f.heard[e.Worker]; failing {
			f.heard[e.Worker] = time.Time{}
		}
		return changed
	case e.Type == schemas.EventStepDone:
		return f.dropWhere(func(worker string) bool { return e.At.Sub(f.heard[worker]) > silentAfter })
	}
	return false
}

// addFailing takes in a producer's report.
func (f *Failures) addFailing(e *schemas.Event) (changed bool) {
	told, _ := schemas.FailingOf(e)
	told.Task, told.ByCause = cutName(told.Task), boundCauses(told.ByCause)
	key := failureKey{e.Worker, told.Task, told.Kind()}
	_, was := f.by[key]
	if told.Over {
		delete(f.by, key)
		if !f.hasSpell(func(k failureKey) bool { return k.worker == e.Worker }) {
			delete(f.heard, e.Worker)
		}
		return was
	}
	if !was && !f.hasRoom(told.Task) {
		return false
	}
	if f.by == nil {
		f.by, f.heard = map[failureKey]failure{}, map[string]time.Time{}
	}
	f.by[key], f.heard[e.Worker] = failure{told, e.At}, e.At
	return true
}

// hasSpell reports whether a spell is of a kind.
func (f *Failures) hasSpell(is func(failureKey) bool) bool {
	for key := range f.by {
		if is(key) {
			return true
		}
	}
	return false
}

// hasRoom reports whether a further spell of a task is kept.
func (f *Failures) hasRoom(task string) bool {
	if len(f.by) >= mostSpells {
		return false
	}
	tasks := map[string]bool{}
	for key := range f.by {
		tasks[key.task] = true
	}
	return tasks[task] || len(tasks) < mostTasks
}

// cutName bounds the name of a task or a cause.
func cutName(name string) string {
	if len(name) <= mostName {
		return name
	}
	return strings.ToValidUTF8(name[:mostName], "")
}

// boundCauses bounds the counts of the causes.
func boundCauses(byCause map[string]int) map[string]int {
	out := map[string]int{}
	for _, cause := range slices.Sorted(maps.Keys(byCause)) {
		if len(out) == mostCauses {
			break
		}
		out[cutName(cause)] += byCause[cause]
	}
	return out
}

// dropOverdue forgets a producer's episodes that do not end: they ended with it.
func (f *Failures) dropOverdue(worker string) (changed bool) {
	before := len(f.by)
	maps.DeleteFunc(f.by, func(key failureKey, _ failure) bool {
		return key.worker == worker && key.kind == schemas.FailingOverdue
	})
	if !f.hasSpell(func(k failureKey) bool { return k.worker == worker }) {
		delete(f.heard, worker)
	}
	return len(f.by) < before
}

// dropWhere forgets the failures of the producers for which gone is true.
func (f *Failures) dropWhere(gone func(worker string) bool) (changed bool) {
	before := len(f.by)
	maps.DeleteFunc(f.by, func(key failureKey, _ failure) bool { return gone(key.worker) })
	maps.DeleteFunc(f.heard, func(worker string, _ time.Time) bool { return gone(worker) })
	return len(f.by) < before
}

// List returns the tasks whose episodes fail, those with the most failures first.
func (f *Failures) List() []Failure {
	byTask := map[failureKey]*Failure{}
	for key, one := range f.by {
		key.worker = ""
		all := byTask[key]
		if all == nil {
			all = &Failure{Task: key.task, ByCause: map[string]int{}}
			byTask[key] = all
		}
		all.Failed += one.Failed
		all.Late += one.Late
		all.Overdue += one.Overdue
		all.Limited += one.Limited
		all.Ended += one.Ended
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
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Kind(), b.Kind()))
	})
	return out
}

// Kind returns what f counts.
func (f *Failure) Kind() schemas.FailingKind {
	told := schemas.Failing{Late: f.Late, Overdue: f.Overdue, Limited: f.Limited}
	return told.Kind()
}

// NameLimit reports whether failures name a task whose episodes a limit ends.
func NameLimit(failures []Failure) bool {
	return slices.ContainsFunc(failures, func(f Failure) bool { return f.Kind() == schemas.FailingLimited })
}

// Clone returns a copy.
func (f *Failures) Clone() Failures { return Failures{maps.Clone(f.by), maps.Clone(f.heard)} }

// countEpisodes says how many episodes do not end.
func countEpisodes(n int) string {
	if n == 1 {
		return "an episode does not end"
	}
	return fmt.Sprintf("%d episodes do not end; the oldest", n)
}

// String tells of the failures in a sentence.
func (f Failure) String() string {
	switch f.Kind() {
	case schemas.FailingLate:
		return fmt.Sprintf("task %s: the agent goes on asking after its episode ended: %d requests; the last: %s",
			Plain(f.Task), f.Late, Plain(f.Last))
	case schemas.FailingOverdue:
		return fmt.Sprintf("task %s: %s: %s", Plain(f.Task), countEpisodes(f.Overdue), Plain(f.Last))
	case schemas.FailingLimited:
		return fmt.Sprintf("task %s: a limit ends nearly every episode: %d of the newest %d trajectories: %s",
			Plain(f.Task), f.Limited, f.Ended, Plain(f.Last))
	}
	causes := slices.SortedFunc(maps.Keys(f.ByCause), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.ByCause[b], f.ByCause[a]), cmp.Compare(a, b))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "task %s: ", Plain(f.Task))
	if f.Succeeded == 0 {
		b.WriteString("no episode succeeds: ")
	}
	fmt.Fprintf(&b, "%d of %d failed", f.Failed, f.Failed+f.Succeeded)
	if len(causes) > 1 {
		for i, cause := range causes {
			causes[i] = fmt.Sprintf("%s %d", Plain(cause), f.ByCause[cause])
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(causes, ", "))
	}
	fmt.Fprintf(&b, "; the last: %s", Plain(f.Last))
	return b.String()
}
