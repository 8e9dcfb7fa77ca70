package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// server is an inference server and the goroutine that keeps it at the wanted version, its keeper.
type server struct {
	pool *Pool
	name string
	// own is its process where the Pool starts it; nil where it runs already.
	own *process
	// kicked, of capacity 1, has the keeper look.
	kicked chan struct{}
	// ended is closed when the keeper has ended.
	ended chan struct{}
	// measuring, of capacity 1, is full while the server's own metrics are read.
	measuring chan struct{}

	// remote and speaker are set by reach, before the server is fit.
	remote  *Remote
	speaker Speaker

	keeper keeperState
	state  serverState
	// watched counts the calls of which some are asked for the probability of their end.
	watched atomic.Int64
}

// keeperState has the fields that a server's keeper alone reads and writes.
type keeperState struct {
	// probed is whether the server's settings were found right, spans whether its answers say which weights sampled which token.
	probed, spans bool
	// have is the version that the server has loaded; nil where that is not known. letGo releases its folder; nil where none is held.
	have  *consumers.Snapshot
	letGo func()
	// tries counts failed attempts in a row; anew is whether the last attempt started a process.
	tries int
	anew  bool
	// was is the version that the server had when it was taken down, nil where that is not certain; letWasGo releases its folder.
	was      *consumers.Snapshot
	letWasGo func()
	// proven is whether a load was verified since the server came, was taken down or was seen on old tensors; unchecked counts the loads
	// since the last that was verified.
	proven    bool
	unchecked int
	// narrow is where an answer of the server ended far below its context, until it was seen to take a longer sequence; 0 where none did.
	narrow int
	// doubted is the evidence from before a load that failed its verification; nil where none did.
	doubted  *evidence
	transfer transferState
}

// serverState has the fields that routing reads. Pool.mu guards it.
type serverState struct {
	// fit is whether calls are served with epoch's weights. While swapping no call is admitted, and running calls may stand still.
	fit, swapping, removed bool
	// leave ends the keeper; nil before it began.
	leave context.CancelCauseFunc
	// epoch is of the weights in use; nil before the first.
	epoch   *epoch
	leases  map[*lease]struct{}
	lengths lengths
	// foreign counts calls of others, as the server's own metrics say.
	foreign int
	// ends are of watched calls.
	ends ends
	// doubts counts the calls that failed since the last that did not; doubt is why the last of them failed.
	doubts int
	doubt  error
	// fault is why the offer faultOf failed here.
	fault   error
	faultOf int
	// paused is how long the last swap stood still.
	paused time.Duration
}

func (p *Pool) newServer(name string, own *process) *server {
	return &server{
		pool: p, name: name, own: own, kicked: make(chan struct{}, 1), ended: make(chan struct{}),
		measuring: make(chan struct{}, 1), state: serverState{leases: map[*lease]struct{}{}},
	}
}

// epoch is the time between two swaps of a server: all its tokens are of the same version.
type epoch struct {
	version int64
	dir     string // of its weights
	label   string
	// sealed is closed when the epoch is over; held then is whether the server had its weights to the end. crossed is whether calls went on
	// with the next weights: an answer that ended after the seal may have tokens of both.
	sealed        chan struct{}
	held, crossed bool
}

// sealEpoch ends an epoch. The caller holds Pool.mu.
func (e *epoch) sealEpoch(held bool) {
	select {
	case <-e.sealed:
	default:
		e.held = held
		close(e.sealed)
	}
}

// setAddress sets where the server is.
func (s *server) setAddress(url string) {
	if s.remote != nil {
		s.remote.Close()
	}
	cfg := s.pool.cfg.Server
	s.remote = NewRemote(url, cfg.APIKey, cfg.AdminAPIKey)
	s.speaker = s.pool.kind.Speak(s.remote)
}

// kickKeeper has the keeper look.
func (s *server) kickKeeper() {
	select {
	case s.kicked <- struct{}{}:
	default:
	}
}

// dropKick takes a kick back, and reports whether there was a kick.
func (s *server) dropKick() bool {
	select {
	case <-s.kicked:
		return true
	default:
		return false
	}
}

// The waits before a server that failed is tried again.
const (
	firstTry = 100 * time.Millisecond
	lastTry  = 10 * time.Second
)

// runKeeper keeps the server at the wanted version until ctx ends or the server is taken out.
func (s *server) runKeeper(ctx context.Context) {
	defer s.endKeeper()
	tick := time.NewTicker(s.pool.cfg.Server.CheckEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		kicked := s.dropKick() // the task is of now: a kick from before it must not cut the wait after a failure short
		want, offer, served, removed := s.nextTask()
		if kicked && served {
			s.kickKeeper()
		}
		switch {
		case removed:
			return
		case want == nil:
			s.waitForWork(ctx, nil, 0)
		case served:
			if s.waitForWork(ctx, tick.C, 0); ctx.Err() != nil {
				return
			}
			if s.own != nil {
				s.own.boundLog(mostLog)
			}
			if err := s.checkServer(ctx); err != nil && ctx.Err() == nil {
				s.takeDown(err)
			}
		default:
			err := s.bringTo(ctx, want)
			if ctx.Err() != nil {
				return
			}
			s.noteAttempt(offer, want.Version, err)
			if err != nil {
				s.waitForWork(ctx, nil, min(firstTry<<min(s.keeper.tries-1, 10), lastTry))
			}
		}
	}
}

// nextTask is the keeper's next task.
func (s *server) nextTask() (want *consumers.Snapshot, offer int, served, removed bool) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	want = s.pool.want
	return want, s.pool.offers, want != nil && s.state.fit && s.state.epoch.version == want.Version && s.keeper.have != nil && s.keeper.have.Dir == want.Dir, s.state.removed
}

// waitForWork waits for a kick, the end of the process, a tick, or some time, where these are set.
func (s *server) waitForWork(ctx context.Context, tick <-chan time.Time, longest time.Duration) {
	var late <-chan time.Time
	if longest > 0 {
		timer := time.NewTimer(longest)
		defer timer.Stop()
		late = timer.C
	}
	var ended <-chan struct{}
	if s.own != nil && longest == 0 {
		ended = s.own.endedChannel()
	}
	select {
	case <-ctx.Done():
	case <-s.kicked:
	case <-ended:
	case <-tick:
	case <-late:
	}
}

// noteAttempt notes how an attempt ended. A server of ours that is not fit after it is started anew, on the version that could not be loaded:
// the offer of the version fails there only where that start fails too.
func (s *server) noteAttempt(offer int, version int64, err error) {
	p := s.pool
	if err == nil {
		s.keeper.tries = 0
		from := cmp.Or(s.keeper.transfer.from, fromFolder)
		p.log.Info("an inference server has a version", "server", s.name, "policy_version", version, "from", from)
		return
	}
	s.keeper.tries++
	p.log.Warn("an inference server could not be brought to a version", "server", s.name, "policy_version", version, "try", s.keeper.tries, "err", err)
	p.mu.Lock()
	fit := s.state.fit
	if s.own == nil || fit || s.keeper.anew {
		s.state.fault, s.state.faultOf = err, offer
	}
	first := p.version < 0
	p.notifyWaiting()
	p.mu.Unlock()
	var wrong *SettingError
	if first && errors.As(err, &wrong) {
		select {
		case p.fatal <- fmt.Errorf("inference server %s: %w", s.name, err):
		default:
		}
	}
	if s.own != nil && s.keeper.anew && !s.own.isRunning() {
		s.own.notePluggedFault()
	}
	if !fit && s.own != nil {
		s.own.stopServer()
	}
}

// takeDown takes the server out of use until it is brought up again: its answers since it was last seen to be right are dropped.
func (s *server) takeDown(err error) {
	s.pool.mu.Lock()
	s.takeDownLocked(err)
	s.pool.notifyWaiting()
	s.pool.mu.Unlock()
	s.keeper.probed, s.keeper.proven = false, false
	s.rememberWeights()
	s.pool.log.Warn("an inference server is unfit", "server", s.name, "err", err)
	if s.own != nil {
		s.pool.metrics.Restarts.Inc()
		s.own.stopServer()
	}
}

// takeDownLocked is takeDown without the keeper's fields.
func (s *server) takeDownLocked(err error) {
	s.state.fit, s.state.swapping, s.state.doubts, s.state.doubt = false, false, 0, nil
	s.state.foreign, s.state.ends, s.state.lengths = 0, ends{}, lengths{}
	s.pool.metrics.Forget(s.name)
	if s.state.epoch != nil {
		s.state.epoch.sealEpoch(false)
	}
	for l := range s.state.leases {
		l.cancel(err)
	}
}

// endKeeper frees what the server holds in this process.
func (s *server) endKeeper() {
	s.measuring <- struct{}{} // the last read of its metrics has ended
	if s.own != nil {
		s.own.stopServer()
	}
	s.forgetWeights()
	s.forgetFormer()
	s.dropEvidence()
	if s.remote != nil {
		s.remote.Close()
	}
}

// checkServer is nil when the server is well and has the weights of its epoch.
func (s *server) checkServer(ctx context.Context) error {
	p := s.pool
	p.mu.Lock()
	doubts, doubt, label := s.state.doubts, s.state.doubt, s.state.epoch.label
	p.mu.Unlock()
	if doubts >= maxDoubts && !s.clearRefusals(ctx, doubt, label) {
		return fmt.Errorf("%d calls in a row have failed: %w", doubts, doubt)
	}
	if s.own != nil && !s.own.isRunning() {
		return s.own.exitFault()
	}
	if err := s.checkNarrow(); err != nil {
		return err
	}
	if err := s.controlRequest(ctx, s.speaker.Health); err != nil {
		return fmt.Errorf("its health: %w", err)
	}
	s.startMeasuring(ctx)
	vouch := s.arrivedTokens()
	if err := s.checkLabel(ctx, label); err != nil {
		return err
	}
	vouch()
	return nil
}

// arrivedTokens notes which tokens of the calls that run have come by now. vouch is called when the server was seen to have the weights of
// its epoch still: then they are of these weights. No swap may come between.
func (s *server) arrivedTokens() (vouch func()) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	arrived := map[*lease]int64{}
	for l := range s.state.leases {
		if l.epoch == s.state.epoch {
			arrived[l] = l.arrived.Load()
		}
	}
	return func() {
		for l, n := range arrived {
			l.vouched.Store(n)
		}
	}
}

// maxDoubts is how many calls in a row may fail while the server's health is good.
const maxDoubts = 5

// checkLabel is nil when the server's weights have a label.
func (s *server) checkLabel(ctx context.Context, label string) error {
	var got string
	err := s.controlRequest(ctx, func(ctx context.Context) (err error) {
		got, err = s.speaker.Label(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the version back: %w", err)
	}
	if got != label {
		return fmt.Errorf("%w: it has weights %q, and %q were loaded", errReplaced, got, label)
	}
	return nil
}

// errReplaced is a server that has other weights than were loaded.
var errReplaced = errors.New("the server was restarted, or somebody else changes its weights")

// controlRequest makes a short request.
func (s *server) controlRequest(ctx context.Context, do func(context.Context) error) error {
	return limitTime(ctx, s.pool.cfg.Server.ControlTimeout, "control_timeout", do)
}

// limitTime makes a request within the time of a key of the configuration.
func limitTime(ctx context.Context, limit time.Duration, key string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within inference.server.%s, %s", key, limit))
	defer cancel()
	return do(ctx)
}
