package runfolder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-rl/weir/streams"
)

// link is a run's connection to its broker, made when it is asked for and kept.
type link struct {
	connect func(ctx context.Context) (*streams.Run, func(), error)

	mu     sync.Mutex
	run    *streams.Run
	leave  func()
	failed time.Time
	why    error
	closed bool
}

const (
	// connectPatience bounds how long a caller waits for a broker.
	connectPatience = time.Second
	// connectAgain is how long after a failure the broker is tried again.
	connectAgain = 3 * time.Second
)

// errNoBroker says that a run has no broker to ask.
var errNoBroker = errors.New("no broker is named for this run")

// openRun returns the run's streams, or why there are none.
func (l *link) openRun(ctx context.Context) (*streams.Run, error) {
	if l.connect == nil {
		return nil, errNoBroker
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errNoBroker
	case l.run != nil && l.run.NATS().IsConnected():
		return l.run, nil
	case l.why != nil && time.Since(l.failed) < connectAgain:
		return nil, l.why
	}
	l.forgetRun() // its broker is gone: it may be back at another address
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

// dropRun forgets a connection that does not answer: the next question connects again.
func (l *link) dropRun(run *streams.Run, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != run || run == nil {
		return
	}
	l.forgetRun()
	l.why, l.failed = err, time.Now()
}

// forgetRun leaves the broker, if there is one. The lock is held.
func (l *link) forgetRun() {
	if l.leave != nil {
		l.leave()
	}
	l.run, l.leave = nil, nil
}

// closeLink leaves the broker.
func (l *link) closeLink() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetRun()
	l.closed = true
}

// Broker returns the run's streams, connecting where that is needed, or why there are none.
func (f *Folder) Broker(ctx context.Context) (*streams.Run, error) { return f.link.openRun(ctx) }

// DropBroker forgets a connection that did not answer: the next call of Broker connects again.
func (f *Folder) DropBroker(run *streams.Run, err error) { f.link.dropRun(run, err) }
