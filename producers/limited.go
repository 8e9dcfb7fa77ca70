package producers

import (
	"fmt"
	"sync"

	"github.com/weir-rl/weir/schemas"
)

// A limit ends nearly every episode of a task where it ended limitedShare of the newest limitedWindow trajectories, of leastLimited at
// least. The spell is over where it ended fewer than unlimitedShare.
const (
	limitedWindow  = 256
	leastLimited   = 64
	limitedShare   = 0.8
	unlimitedShare = 0.6
)

// limitKeys are the keys of the limits that end an episode, by the stop reason.
var limitKeys = map[schemas.StopReason]string{
	schemas.StopTurns: "trainer.limits.max_turns", schemas.StopTokens: "trainer.limits.max_tokens",
	schemas.StopTimeout: "trainer.limits.timeout", schemas.StopSegments: "trainer.limits.max_segments",
}

// limitWatch decides when a limit that ends nearly every episode of a task is to be reported. It is safe for concurrent use.
type limitWatch struct {
	task, agent string
	report      func(schemas.Failing) // nil reports nothing

	mu     sync.Mutex
	newest [limitedWindow]schemas.StopReason
	// next is the place of the next stop reason, filled how many there are.
	next, filled int
	// counts are the newest stop reasons that are limits.
	counts map[schemas.StopReason]int
	// reported is the limit of the spell; "" is none.
	reported schemas.StopReason
}

// addStop takes why a trajectory ended. It reports the begin and the end of a spell.
func (l *limitWatch) addStop(stop schemas.StopReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[schemas.StopReason]int{}
	}
	if l.filled == limitedWindow {
		l.counts[l.newest[l.next]]--
	}
	l.newest[l.next], l.next, l.filled = stop, (l.next+1)%limitedWindow, min(l.filled+1, limitedWindow)
	l.counts[stop]++
	share := func(reason schemas.StopReason) float64 { return float64(l.counts[reason]) / float64(l.filled) }
	switch _, limit := limitKeys[stop]; {
	case l.reported != "" && share(l.reported) < unlimitedShare:
		l.sendReport(l.reported, true)
		l.reported = ""
	case l.reported == "" && limit && l.filled >= leastLimited && share(stop) >= limitedShare:
		l.reported = stop
		l.sendReport(stop, false)
	}
}

// sendReport makes a report. The lock is held.
func (l *limitWatch) sendReport(reason schemas.StopReason, over bool) {
	if l.report == nil {
		return
	}
	agent := "the agent"
	if l.agent != "" {
		agent = "agent " + l.agent
	}
	l.report(schemas.Failing{
		Task: l.task, Over: over, Limited: max(1, l.counts[reason]), Ended: l.filled,
		Last: fmt.Sprintf("%s was stopped by %s. It may ask on and on: bound its loop, or raise %s", agent, reason, limitKeys[reason]),
	})
}
