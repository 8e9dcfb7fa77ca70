package view

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// live is a run's connection to its broker, made when it is asked for and kept.
type live struct {
	connect func(ctx context.Context) (*streams.Run, func(), error)

	mu     sync.Mutex
	run    *streams.Run
	leave  func()
	failed time.Time
	why    error
	closed bool
}

const (
	// connectPatience bounds how long a page waits for a broker.
	connectPatience = time.Second
	// connectAgain is how long after a failure the broker is tried again.
	connectAgain = 3 * time.Second
)

// errNoBroker says that a run has no broker to ask.
var errNoBroker = errors.New("no broker is named for this run")

// get is the run's streams, or why there are none.
func (l *live) get(ctx context.Context) (*streams.Run, error) {
	if l.connect == nil {
		return nil, errNoBroker
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errNoBroker
	case l.run != nil:
		return l.run, nil
	case l.why != nil && time.Since(l.failed) < connectAgain:
		return nil, l.why
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	run, leave, err := l.connect(ctx)
	if err != nil {
		l.why, l.failed = err, time.Now()
		return nil, err
	}
	l.run, l.leave, l.why = run, leave, nil
	return run, nil
}

// drop forgets a connection that does not answer: the next question connects again.
func (l *live) drop(run *streams.Run, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != run || run == nil {
		return
	}
	if l.leave != nil {
		l.leave()
	}
	l.run, l.leave, l.why, l.failed = nil, nil, err, time.Now()
}

// close leaves the broker.
func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leave != nil {
		l.leave()
	}
	l.run, l.leave, l.closed = nil, nil, true
}

// looked bounds how many stored messages are looked through for one trajectory.
const looked = 4096

// trajectory looks for a trajectory among the refused messages that the broker keeps; nil where it is not there.
func (l *live) trajectory(ctx context.Context, id string) (*schemas.Trajectory, error) {
	run, err := l.get(ctx)
	if err != nil {
		return nil, nil // without a broker there is nothing to look at
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n := 0
	for m, err := range run.Rejected(ctx) {
		if n++; err != nil || n > looked {
			return nil, nil // it is not found
		}
		kind, _, err := schemas.Peek(m.Data)
		if err != nil || kind != schemas.KindTrajectory {
			continue
		}
		t := new(schemas.Trajectory)
		if schemas.Unmarshal(m.Data, t) == nil && t.ID == id {
			return t, nil
		}
	}
	return nil, nil
}
