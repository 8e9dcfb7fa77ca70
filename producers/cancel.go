package producers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// running holds the episodes that run now and the current control, and cuts episodes off that the control says can
// no longer be used.
type running struct {
	mu       sync.Mutex
	control  schemas.Control
	changed  chan struct{} // closed and replaced when pausing changes
	takes    map[*context.CancelFunc]struct{}
	episodes map[*runningEpisode]struct{}
}

type runningEpisode struct {
	episode *Episode
	group   string
	cancel  context.CancelCauseFunc
}

func newRunning() *running {
	return &running{
		changed: make(chan struct{}), takes: map[*context.CancelFunc]struct{}{}, episodes: map[*runningEpisode]struct{}{},
	}
}

// followControl applies a new control: it pauses or resumes, and cuts episodes off that are too old.
func (r *running) followControl(control *schemas.Control) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if control.Paused != r.control.Paused {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.control = *control
	if control.Paused {
		for interrupt := range r.takes {
			(*interrupt)()
		}
	}
	for e := range r.episodes {
		r.cutOffOutdated(e)
	}
}

// enterTaking asks to take tickets. While that is paused it returns a channel that closes when it may be asked again.
// Otherwise the channel is nil, and interrupt is called when a pause begins before leave is.
func (r *running) enterTaking(interrupt context.CancelFunc) (paused <-chan struct{}, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.control.Paused {
		return r.changed, func() {}
	}
	r.takes[&interrupt] = struct{}{}
	return nil, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.takes, &interrupt)
	}
}

// addEpisode adds an episode that starts; removeEpisode must be called when it has ended.
func (r *running) addEpisode(ticket *schemas.Ticket, env Environment, cancel context.CancelCauseFunc) *runningEpisode {
	entry := &runningEpisode{group: ticket.Group, cancel: cancel}
	entry.episode = newEpisode(ticket, env, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cutOffOutdated(entry)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.episodes[entry] = struct{}{}
	r.cutOffOutdated(entry)
	return entry
}

func (r *running) removeEpisode(entry *runningEpisode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.episodes, entry)
}

// readActivities returns the activity of the episodes that run now, by task.
func (r *running) readActivities(now time.Time) map[string][]activityNow {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]activityNow{}
	for entry := range r.episodes {
		task := entry.episode.Task()
		out[task] = append(out[task], entry.episode.readActivity(now))
	}
	return out
}

// cutOffOutdated cancels an episode if the control no longer allows it. The lock is held.
func (r *running) cutOffOutdated(e *runningEpisode) {
	oldest := e.episode.Oldest()
	switch {
	case slices.Contains(r.control.Cancelled, e.group):
		e.cancel(errCancelled)
	case oldest != int64(schemas.NoVersion) && oldest < r.control.MinVersion:
		e.cancel(errStale)
	}
}
