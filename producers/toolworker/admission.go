package toolworker

import "time"

// A refused session is remembered for rememberFor after it has asked: callers ask again within longest, and may ask another worker. At most
// mostRefused are.
const (
	rememberFor = 2 * longest
	mostRefused = 4096
)

// admission admits sessions by the sandboxes that they take. A session that takes more than others would find so many free at once by
// chance alone: so a session does not take what a session that takes more, and was refused before it came, waits for.
type admission struct {
	sandboxes int
	// places are how many sandboxes a session of a task takes; taken is how many the open sessions may take.
	places map[string]int
	taken  int
	// refused are the sessions that wait, by name.
	refused map[string]refusedSession
}

// refusedSession is a session that takes so many sandboxes, was first refused at since, and is remembered until then.
type refusedSession struct {
	takes        int
	since, until time.Time
}

// admits reports whether a session of a task finds the sandboxes that it takes, and remembers a session that does not.
func (a *admission) admits(session, task string, now time.Time) bool {
	takes := a.places[task]
	if takes == 0 {
		return true
	}
	mine, again := a.refused[session]
	if !again || !now.Before(mine.until) {
		mine = refusedSession{since: now}
	}
	after := a.taken + takes
	ok := a.taken == 0 || after <= a.sandboxes
	for name, other := range a.refused {
		switch {
		case !now.Before(other.until):
			delete(a.refused, name)
		case other.takes > takes && other.since.Before(mine.since) && after+other.takes > a.sandboxes:
			ok = false
		}
	}
	if ok {
		a.forget(session)
		return true
	}
	if a.refused == nil {
		a.refused = map[string]refusedSession{}
	}
	if again || len(a.refused) < mostRefused {
		mine.takes, mine.until = takes, now.Add(rememberFor)
		a.refused[session] = mine
	}
	return false
}

// forget forgets a session that waits no more.
func (a *admission) forget(session string) { delete(a.refused, session) }
