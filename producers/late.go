package producers

import (
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
)

const (
	// leastLate is how many requests after its end an episode has when its agent counts as going on: a client may be on its way once or
	// twice when its episode is cancelled.
	leastLate = 3
	// lateSpell is how long after the newest such request the agents count as well-behaved again.
	lateSpell = time.Minute
)

// lateWatch decides when the requests of a task's agents after the end of their episodes are to be reported. It is safe for concurrent use.
type lateWatch struct {
	task    string
	report  func(schemas.Failing) // nil reports nothing
	metrics *Metrics
	now     func() time.Time

	mu     sync.Mutex
	count  int
	last   string
	newest time.Time
	// reported is the count of the newest report of the spell, 0 is none; reportedAt is when that was.
	reported   int
	reportedAt time.Time
}

// addRequest takes the n-th request after the end of an episode. A report is due where an episode has leastLate of them, at each doubling
// of the count, and at a request long after the last report.
func (l *lateWatch) addRequest(n int, request string) {
	l.metrics.countLate()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.last, l.newest = cutText(request, MaxFailureWords), l.now()
	due := l.reported == 0 && n >= leastLate ||
		l.reported > 0 && (l.count >= 2*l.reported || l.newest.Sub(l.reportedAt) >= reportAgain)
	if due && l.report != nil {
		l.reported, l.reportedAt = l.count, l.newest
		l.report(schemas.Failing{Task: l.task, Late: l.count, Last: l.last})
	}
}

// endSpell ends the spell where the newest request is long ago, and reports that.
func (l *lateWatch) endSpell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 || l.now().Sub(l.newest) < lateSpell {
		return
	}
	if l.reported > 0 {
		l.report(schemas.Failing{Task: l.task, Over: true, Late: l.count, Last: l.last})
	}
	l.count, l.reported = 0, 0
}

// LateReporter returns the function that counts requests which the episode's agent makes after the episode has ended: the n-th of the
// episode, by its method and path. The function holds nothing of the episode, and many goroutines may call it at once.
func (e *Episode) LateReporter() func(n int, request string) {
	late := e.env.late
	if late == nil {
		return func(int, string) {}
	}
	return late.addRequest
}
