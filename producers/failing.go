package producers

import (
	"maps"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// MaxFailureWords bounds the words of a failure in a [schemas.Failing], in bytes.
const MaxFailureWords = 500

// A task fails from leastFailures failures on that are a quarter of its newest failureWindow attempts or more; it succeeds again when they
// are a tenth or less.
const (
	failureWindow = 64
	leastFailures = 5
)

// failureWatch decides when the failures of a task are to be reported. Its zero value has seen none.
type failureWatch struct {
	mu sync.Mutex
	// newest are the outcomes of the newest attempts, true where one failed; next is the place of the next.
	newest       [failureWindow]bool
	next, filled int
	// failed counts the failures among newest.
	failed  int
	failing bool
	spell   schemas.Failing
	// reported is when the spell was reported last.
	reported time.Time
}

// reportAgain is after which time a spell that goes on is reported again: a trainer that joined meanwhile has not seen the report before.
const reportAgain = 5 * time.Minute

// addOutcome takes the end of an attempt. It returns what is to be reported, and false where nothing is: a spell of failures is reported
// when it is seen, at each doubling of its failures, at a failure long after the last report, and when it is over.
func (f *failureWatch) addOutcome(task string, err error, now time.Time) (schemas.Failing, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slide(err != nil)
	if err == nil && f.failed == 0 && !f.failing {
		f.spell = schemas.Failing{}
		return schemas.Failing{}, false
	}
	s := &f.spell
	s.Task = task
	if err != nil {
		if s.ByCause == nil {
			s.ByCause = map[string]int{}
		}
		s.Failed++
		s.ByCause[failureCause(err)]++
		s.Last = cutText(err.Error(), MaxFailureWords)
	} else {
		s.Succeeded++
	}
	switch {
	case f.failing && 10*f.failed <= f.filled:
		over := *s
		over.Over = true
		f.failing, f.spell = false, schemas.Failing{}
		return over, true
	case err == nil:
		return schemas.Failing{}, false
	case !f.failing && f.failed >= leastFailures && 4*f.failed >= f.filled:
		f.failing = true
		return f.report(now), true
	case f.failing && (s.Failed >= leastFailures && isDoubling(s.Failed, leastFailures) || now.Sub(f.reported) >= reportAgain):
		return f.report(now), true
	}
	return schemas.Failing{}, false
}

// isLogged reports whether the newest failure of the spell is among its first, or doubles their number.
func (f *failureWatch) isLogged() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.spell.Failed <= leastFailures || isDoubling(f.spell.Failed, leastFailures)
}

// report returns a copy of the spell, which is reported now.
func (f *failureWatch) report(now time.Time) schemas.Failing {
	f.reported = now
	out := f.spell
	out.ByCause = maps.Clone(out.ByCause)
	return out
}

// slide moves the window on by one attempt.
func (f *failureWatch) slide(failed bool) {
	if f.filled == failureWindow {
		if f.newest[f.next] {
			f.failed--
		}
	} else {
		f.filled++
	}
	f.newest[f.next] = failed
	f.next = (f.next + 1) % failureWindow
	if failed {
		f.failed++
	}
}

// isDoubling reports whether n is base times a power of two.
func isDoubling(n, base int) bool {
	return n%base == 0 && (n/base)&(n/base-1) == 0
}
