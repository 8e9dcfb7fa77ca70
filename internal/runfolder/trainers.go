package runfolder

import (
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// trainers are the trainers that have joined a run and not left, the newest last. A run has a single trainer that makes steps; a second
// that was started beside it joins, is refused and leaves.
type trainers []trainerThere

// mostTrainers bounds the trainers that are remembered.
const mostTrainers = 64

type trainerThere struct {
	worker string
	heard  time.Time
	again  time.Duration
	// before is how the run stood when it joined.
	before standing
}

// standing is the state that the trainers' events tell, with the step of a supervised start where it is in one.
type standing struct {
	state     State
	coldStart *schemas.Event
}

// noteHeard takes in that a trainer is there.
func (t *trainers) noteHeard(e *schemas.Event, now standing) {
	again := promisedAgain(e)
	at := t.findTrainer(e.Worker)
	if at < 0 {
		if len(*t) == mostTrainers {
			*t = slices.Delete(*t, 0, 1)
		}
		*t = append(*t, trainerThere{worker: e.Worker, before: now})
		at = len(*t) - 1
	}
	one := &(*t)[at]
	one.heard, one.again = e.At, max(one.again, again)
}

// isSilent reports whether the newest trainer has broken its promises to tell of itself.
func (t trainers) isSilent(now time.Time) bool {
	if len(t) == 0 {
		return false
	}
	newest := t[len(t)-1]
	return newest.again > 0 && now.Sub(newest.heard) > promises*newest.again
}

// keepPromises reports whether the newest trainer, which is not silent, has promised to tell of itself.
func (t trainers) keepPromises() bool { return len(t) > 0 && t[len(t)-1].again > 0 }

func (t *trainers) findTrainer(worker string) int {
	return slices.IndexFunc(*t, func(o trainerThere) bool { return o.worker == worker })
}

// noteStep takes in that a trainer makes the run's steps: the trainers that joined before it have lost the run.
func (t *trainers) noteStep(worker string) {
	if at := t.findTrainer(worker); at > 0 {
		*t = slices.Delete(*t, 0, at)
	}
}

// noteLeft takes in that a trainer has left, and returns how the run stands then.
func (t *trainers) noteLeft(e *schemas.Event, now standing) standing {
	before := standing{state: StateLeft}
	newest := true
	if at := t.findTrainer(e.Worker); at >= 0 {
		before, newest = (*t)[at].before, at == len(*t)-1
		if *t = slices.Delete(*t, at, at+1); !newest {
			(*t)[at].before = before
		}
	}
	*t = slices.DeleteFunc(*t, func(o trainerThere) bool { return o.again > 0 && e.At.Sub(o.heard) > promises*o.again })
	switch {
	case now.state == StateFinished:
		return now
	case len(*t) == 0 && now.state == StateStarting && before.state == StateFinished:
		return before // it was refused, or had nothing to do
	case len(*t) == 0:
		return standing{state: StateLeft}
	case newest && now.state == StateStarting:
		return before
	}
	return now
}
