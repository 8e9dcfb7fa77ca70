package producers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
)

const (
	// An episode is overdue when its agent has asked for nothing for leastOverdue, and for overdueTimes times as long as the longest of the
	// task's newest usualWindow episodes took. So is an episode that has run for so long and asked more than mostAsked times, and overdueTimes
	// times as often as any of these episodes.
	leastOverdue = 30 * time.Second
	overdueTimes = 4
	mostAsked    = 64
	usualWindow  = 64
	// firstOverdue takes the place of both bounds before an episode of the task has ended.
	firstOverdue = 45 * time.Second
	// lookEvery is how often the running episodes are looked at, and overdueSpell how long after the newest overdue episode a spell ends.
	lookEvery    = 5 * time.Second
	overdueSpell = time.Minute
)

// activity is what the agent of an episode does, as seen from outside. Its zero value has done nothing.
type activity struct {
	mu sync.Mutex
	// asked counts the requests to the policy, waiting those that are not answered.
	asked, waiting int
	// calling are the waits, and behind them the tools and the reward whose calls have not returned, in the order of their begin.
	calling []*string
	// unclaimed is whether nobody has come yet for an episode of an agent that comes by itself.
	unclaimed bool
	// newest is when a request, a call or a wait began or ended last; the zero time before the first.
	newest time.Time
	// waits counts the waits that have not ended, works the requests and calls that do not wait. still is whether the episode's time stands
	// still, and stillSince since when. waited is for how long it did before, and limit the time limit, which stood still meanwhile.
	waits, works int
	still        bool
	stillSince   time.Time
	waited       time.Duration
	limit        *agentTime
	// placed is whether the episode has a place of its own among few, kept whether until it is closed. placing end its waits for a place.
	placed, kept bool
	placing      []*func()
}

// beginRequest notes a request to the policy. The returned function notes its answer.
func (a *activity) beginRequest() (answered func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	a.waiting++
	a.newest = time.Now()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waiting--
		a.newest = time.Now()
	}
}

// beginCall notes a call of a part by its name. The returned function notes its return.
func (a *activity) beginCall(part, name string) (returned func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addCalling(len(a.calling), strings.TrimSpace(part+" "+name))
}

// beginWait notes a wait for a thing, which is told of before the calls that wait with it. The returned function notes its end.
func (a *activity) beginWait(thing string) (over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addCalling(0, thing)
}

// addCalling adds a call, or a wait, at a place of the list. The lock is held.
func (a *activity) addCalling(at int, call string) (returned func()) {
	a.calling, a.newest = slices.Insert(a.calling, at, &call), time.Now()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calling = slices.DeleteFunc(a.calling, func(other *string) bool { return other == &call })
		a.newest = time.Now()
	}
}

// activityNow is an episode's activity at an instant.
type activityNow struct {
	id      string
	asked   int
	waiting bool
	// unclaimed is that of activity.
	unclaimed bool
	// still is whether the episode's time stands still. begun is whether anything was begun for it.
	still, begun bool
	// calling is the call that has gone on for longest; "" is none.
	calling    string
	age, quiet time.Duration
	started    time.Time
}

// readActivity returns the episode's activity.
func (e *Episode) readActivity(now time.Time) activityNow {
	a := &e.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	s := activityNow{
		id: e.ID(), asked: a.asked, waiting: a.waiting > 0, unclaimed: a.unclaimed, still: a.still,
		age: now.Sub(e.started) - a.waited, started: e.started, begun: !a.newest.IsZero(),
	}
	if len(a.calling) > 0 {
		s.calling = *a.calling[0]
	}
	if s.quiet = s.age; !a.newest.IsZero() {
		s.quiet = now.Sub(a.newest)
	}
	return s
}

// startedAt is when the work on the episode began.
func (e *Episode) startedAt() time.Time {
	e.activity.mu.Lock()
	defer e.activity.mu.Unlock()
	return e.started.Add(e.activity.waited)
}

// endedEpisode is how an episode went that ended by itself.
type endedEpisode struct {
	took  time.Duration
	asked int
}

// overdueWatch decides when running episodes of a task that do not end are to be reported. It is safe for concurrent use.
type overdueWatch struct {
	task, agent string
	report      func(schemas.Failing) // nil reports nothing

	mu sync.Mutex
	// ended are the newest episodes that ended by themselves, next is the place of the next, filled their number.
	ended        [usualWindow]endedEpisode
	next, filled int
	// newestEnd is when the newest of them ended, latestStart when the one that began last began.
	newestEnd, latestStart time.Time
	// reported is the newest report of the spell, none where its Overdue is 0; reportedAt is when that was, and reportedQuiet for how long the
	// oldest episode had asked for nothing. seen is when an episode was overdue last.
	reported         schemas.Failing
	reportedAt, seen time.Time
	reportedQuiet    time.Duration
	// roomless is since when episodes wait for room and none goes on or ends, whichever attempts they are; the zero time is no such wait.
	// waitsSeen is when an episode waited last.
	roomless, waitsSeen time.Time
}

// addEnded takes an episode that ended by itself: a time limit did not end it.
func (o *overdueWatch) addEnded(e *Episode, now time.Time) {
	s := e.readActivity(now)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[o.next] = endedEpisode{s.age, s.asked}
	o.next, o.filled = (o.next+1)%usualWindow, min(o.filled+1, usualWindow)
	o.newestEnd = now
	if o.latestStart.Before(s.started) {
		o.latestStart = s.started
	}
}

// usualEpisode returns the longest time and the most requests of the newest episodes. The lock is held.
func (o *overdueWatch) usualEpisode() endedEpisode {
	var most endedEpisode
	for _, e := range o.ended[:o.filled] {
		most.took, most.asked = max(most.took, e.took), max(most.asked, e.asked)
	}
	return most
}

// lookAt looks at the running episodes of the task. It reports the first that is overdue, each doubling of their number or of the oldest's
// silence, a spell that goes on for long, and its end. It returns how many are overdue.
func (o *overdueWatch) lookAt(running []activityNow, now time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	usual := o.usualEpisode()
	o.noteWaits(running, usual, now)
	var oldest activityNow
	n := 0
	for _, s := range running {
		if !o.isOverdue(&s, usual, now) {
			continue
		}
		if n++; s.age > oldest.age {
			oldest = s
		}
	}
	switch {
	case n == 0 && o.reported.Overdue > 0 && now.Sub(o.seen) >= overdueSpell:
		over := o.reported
		over.Over, o.reported = true, schemas.Failing{}
		o.sendReport(over)
	case n > 0:
		o.seen = now
		if o.reported.Overdue == 0 || n >= 2*o.reported.Overdue || oldest.quiet >= 2*o.reportedQuiet || now.Sub(o.reportedAt) >= reportAgain {
			o.reported = schemas.Failing{Task: o.task, Overdue: n, Last: o.describeOldest(&oldest, usual, now)}
			o.reportedAt, o.reportedQuiet = now, oldest.quiet
			o.sendReport(o.reported)
		}
	}
	return n
}

// noteWaits notes since when episodes of the task wait for room and none goes on or ends: an episode goes on whose request or call is not
// overdue. The lock is held.
func (o *overdueWatch) noteWaits(running []activityNow, usual endedEpisode, now time.Time) {
	newest, longest, waits := o.newestEnd, time.Duration(0), false
	for _, s := range running {
		switch {
		case s.awaitsRoom():
			waits, longest = true, max(longest, s.quiet)
		case s.begun && !o.isOverdue(&s, usual, now):
			newest = now
		}
	}
	if newest.After(o.roomless) || now.Sub(o.waitsSeen) >= leastOverdue {
		o.roomless = time.Time{}
	}
	if !waits {
		return
	}
	if o.waitsSeen = now; !o.roomless.IsZero() {
		return
	}
	if o.roomless = now.Add(-longest); newest.After(o.roomless) {
		o.roomless = newest
	}
}

// awaitsRoom reports whether the episode waits for what other episodes have.
func (s *activityNow) awaitsRoom() bool { return s.still && !s.unclaimed }

// isOverdue reports whether a running episode is overdue. An episode that has asked for nothing may only wait for a free agent: it is
// overdue where an episode that began later has ended, or where no episode ends. An episode that waits for room is overdue where no episode
// of the task has come to any for leastOverdue. The lock is held.
func (o *overdueWatch) isOverdue(s *activityNow, usual endedEpisode, now time.Time) bool {
	bound := max(leastOverdue, overdueTimes*usual.took)
	if o.filled == 0 {
		bound = firstOverdue
	}
	switch {
	case o.filled > 0 && !s.still && s.age >= bound && s.asked > max(mostAsked, overdueTimes*usual.asked):
		return true
	case s.awaitsRoom():
		return now.Sub(o.roomless) >= leastOverdue
	case s.waiting, s.quiet < bound:
		return false
	case s.asked == 0 && s.calling == "" && o.filled > 0:
		return s.started.Before(o.latestStart) || now.Sub(o.newestEnd) >= bound
	}
	return true
}

// describeOldest tells of an overdue episode in a clause. The lock is held.
func (o *overdueWatch) describeOldest(s *activityNow, usual endedEpisode, now time.Time) string {
	text := fmt.Sprintf("%s has run for %.0f s: ", s.id, s.age.Seconds())
	if s.unclaimed {
		return text + "no agent has come for it (start more agents, or lower producer.concurrency)"
	}
	if o.agent != "" {
		text += "agent " + o.agent + " "
	} else {
		text += "its agent "
	}
	switch {
	case s.calling != "":
		text += fmt.Sprintf("has waited for %s for %.0f s", s.calling, s.quiet.Seconds())
	case s.asked > mostAsked && s.quiet < leastOverdue:
		text += fmt.Sprintf("has asked the policy %d times", s.asked)
	case s.asked > 0:
		text += fmt.Sprintf("has asked for nothing for %.0f s, after %s", s.quiet.Seconds(), countRequests(s.asked))
	default:
		text += "has asked for nothing"
	}
	if alone := now.Sub(o.roomless); s.awaitsRoom() && alone >= s.quiet+time.Second {
		return text + fmt.Sprintf("; no episode of the task has gone on for %.0f s", alone.Seconds())
	}
	if s.still || strings.HasPrefix(s.calling, partSession) {
		return text // its agent has not begun
	}
	if o.filled == 0 {
		return text + "; no episode of the task has ended yet. An endless loop, or a slow agent?"
	}
	return text + fmt.Sprintf("; the newest %d episodes took at most %.3g s and %s. An endless loop?",
		o.filled, usual.took.Seconds(), countRequests(usual.asked))
}

// countRequests says a number of requests.
func countRequests(n int) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

// sendReport makes a report. The lock is held.
func (o *overdueWatch) sendReport(f schemas.Failing) {
	if o.report != nil {
		f.Last = cutText(f.Last, MaxFailureWords)
		o.report(f)
	}
}
