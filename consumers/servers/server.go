package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// server is one inference server and the goroutine that keeps it at the wanted version.
type server struct {
	pool *Pool
	name string
	// own is its process where the Pool starts it; nil where it runs already.
	own *process
	// kicked holds one item: there is something to look at.
	kicked chan struct{}
	// ended is closed when the keeper has ended.
	ended chan struct{}

	// remote and speaker are set by reach, before the server is fit.
	remote  *Remote
	speaker Speaker

	// The keeper's.
	probed bool                // its settings are right
	spans  bool                // its answers say which weights sampled which token
	have   *consumers.Snapshot // what it has loaded; nil where that is not known
	letGo  func()              // of the folder of have; nil where it holds none
	tries  int                 // in a row that have failed
	loads  int                 // that replaced a known version
	// doubted is what the server had before a load that failed its verification; nil where none did.
	doubted *evidence

	// Under Pool.mu.
	fit       bool // calls are served with epoch's weights
	swapping  bool // no call is admitted, and those that run may stand still
	removed   bool
	leave     context.CancelCauseFunc // ends the keeper; nil before it began
	epoch     *epoch                  // of the weights in use; nil before the first
	leases    map[*lease]struct{}
	maxTokens int   // the server's own bound of a sequence; 0 is none
	foreign   int   // calls of others, as the server's own metrics say
	ends      ends  // of watched calls
	doubts    int   // calls that failed since the last that did not
	doubt     error // the last of them
	// fault is why the offer faultOf failed here.
	fault   error
	faultOf int
	paused  time.Duration // how long the last swap stood still
}

func (p *Pool) newServer(name string, own *process) *server {
	return &server{pool: p, name: name, own: own, kicked: make(chan struct{}, 1), ended: make(chan struct{}), leases: map[*lease]struct{}{}}
}

// epoch is the time between two swaps of a server: its tokens are all of one version.
type epoch struct {
	version int64
	dir     string // of its weights
	label   string
	// sealed is closed when the epoch is over; held then says whether the server had its weights to the end.
	sealed chan struct{}
	held   bool
}

// seal ends an epoch. The caller holds Pool.mu.
func (e *epoch) seal(held bool) {
	select {
	case <-e.sealed:
	default:
		e.held = held
		close(e.sealed)
	}
}

// reach sets where the server is.
func (s *server) reach(url string) {
	if s.remote != nil {
		s.remote.Close()
	}
	cfg := s.pool.cfg.Server
	s.remote = NewRemote(url, cfg.APIKey, cfg.AdminAPIKey)
	s.speaker = s.pool.kind.Speak(s.remote)
}

// kick has the keeper look.
func (s *server) kick() {
	select {
	case s.kicked <- struct{}{}:
	default:
	}
}

// The waits before a server that failed is tried again.
const (
	firstTry = 100 * time.Millisecond
	lastTry  = 10 * time.Second
)

// run keeps the server at the wanted version until ctx ends or the server is taken out.
func (s *server) run(ctx context.Context) {
	defer s.end()
	tick := time.NewTicker(s.pool.cfg.Server.CheckEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		want, offer, served, removed := s.task()
		switch {
		case removed:
			return
		case want == nil:
			s.wait(ctx, nil, 0)
		case served:
			if s.wait(ctx, tick.C, 0); ctx.Err() != nil {
				return
			}
			if err := s.check(ctx); err != nil && ctx.Err() == nil {
				s.down(err)
			}
		default:
			err := s.bring(ctx, want)
			if ctx.Err() != nil {
				return
			}
			s.tried(offer, want.Version, err)
			if err != nil {
				s.wait(ctx, nil, min(firstTry<<min(s.tries-1, 10), lastTry))
			}
		}
	}
}

// task is what the keeper has to do.
func (s *server) task() (want *consumers.Snapshot, offer int, served, removed bool) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	want = s.pool.want
	return want, s.pool.offers, want != nil && s.fit && s.epoch.version == want.Version && s.have != nil && s.have.Dir == want.Dir, s.removed
}

// wait waits for a kick, the end of the process, a tick, or some time, where there is one.
func (s *server) wait(ctx context.Context, tick <-chan time.Time, longest time.Duration) {
	var late <-chan time.Time
	if longest > 0 {
		timer := time.NewTimer(longest)
		defer timer.Stop()
		late = timer.C
	}
	var ended <-chan struct{}
	if s.own != nil && longest == 0 {
		ended = s.own.ended()
	}
	select {
	case <-ctx.Done():
	case <-s.kicked:
	case <-ended:
	case <-tick:
	case <-late:
	}
}

// tried notes how an attempt ended. A server of ours that is not fit after it is started anew.
func (s *server) tried(offer int, version int64, err error) {
	p := s.pool
	if err == nil {
		s.tries = 0
		p.log.Info("an inference server has a version", "server", s.name, "policy_version", version)
		return
	}
	s.tries++
	p.log.Warn("an inference server could not be brought to a version", "server", s.name, "policy_version", version, "try", s.tries, "err", err)
	p.mu.Lock()
	s.fault, s.faultOf = err, offer
	fit := s.fit
	first := p.version < 0
	p.notify()
	p.mu.Unlock()
	var wrong *SettingError
	if first && errors.As(err, &wrong) {
		select {
		case p.fatal <- fmt.Errorf("inference server %s: %w", s.name, err):
		default:
		}
	}
	if !fit && s.own != nil {
		s.own.stop()
	}
}

// down takes the server out of use until it is brought up again: what it said since it was last seen to be right is dropped.
func (s *server) down(err error) {
	s.pool.mu.Lock()
	s.downLocked(err)
	s.pool.notify()
	s.pool.mu.Unlock()
	s.probed = false
	s.lacks()
	s.pool.log.Warn("an inference server is unfit", "server", s.name, "err", err)
	if s.own != nil {
		s.pool.metrics.Restarts.Inc()
		s.own.stop()
	}
}

// downLocked is down but for what is the keeper's.
func (s *server) downLocked(err error) {
	s.fit, s.swapping, s.doubts, s.doubt = false, false, 0, nil
	s.foreign, s.ends = 0, ends{}
	s.pool.metrics.Forget(s.name)
	if s.epoch != nil {
		s.epoch.seal(false)
	}
	for l := range s.leases {
		l.cancel(err)
	}
}

// end gives back what the server has here.
func (s *server) end() {
	if s.own != nil {
		s.own.stop()
	}
	s.lacks()
	s.dropEvidence()
	if s.remote != nil {
		s.remote.Close()
	}
}

// check is nil when the server is well and has the weights of its epoch.
func (s *server) check(ctx context.Context) error {
	p := s.pool
	p.mu.Lock()
	doubts, doubt, label := s.doubts, s.doubt, s.epoch.label
	p.mu.Unlock()
	if doubts >= maxDoubts {
		return fmt.Errorf("%d calls in a row have failed: %w", doubts, doubt)
	}
	if s.own != nil && !s.own.running() {
		return s.own.fault()
	}
	if err := s.control(ctx, s.speaker.Health); err != nil {
		return fmt.Errorf("its health: %w", err)
	}
	s.readGauges(ctx)
	vouch := s.arrivedTokens()
	if err := s.has(ctx, label); err != nil {
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
	for l := range s.leases {
		if l.epoch == s.epoch {
			arrived[l] = l.arrived.Load()
		}
	}
	return func() {
		for l, n := range arrived {
			l.vouched.Store(n)
		}
	}
}

// maxDoubts is how many calls in a row may fail while the server says that it is well.
const maxDoubts = 5

// has is nil when the server's weights have a label.
func (s *server) has(ctx context.Context, label string) error {
	var got string
	err := s.control(ctx, func(ctx context.Context) (err error) {
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

// errReplaced is a server that is not the one whose weights were loaded.
var errReplaced = errors.New("the server was restarted, or somebody else changes its weights")

// control makes a short request.
func (s *server) control(ctx context.Context, do func(context.Context) error) error {
	return within(ctx, s.pool.cfg.Server.ControlTimeout, "control_timeout", do)
}

// within makes a request that may take some time, as a key of the configuration says.
func within(ctx context.Context, limit time.Duration, key string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within inference.server.%s, %s", key, limit))
	defer cancel()
	return do(ctx)
}

// lacks notes that the server's weights are unknown, and releases the folder of its last weights.
func (s *server) lacks() {
	if s.have = nil; s.letGo != nil {
		s.letGo()
		s.letGo = nil
	}
}

// bring makes the server serve with a version, whatever state it is in. It holds the folders of the wanted version and of the last one until it ends,
// and the folder that the server then serves with for as long as it does: other servers may take many versions while this server starts or loads.
func (s *server) bring(ctx context.Context, want *consumers.Snapshot) error {
	release, there := want.Hold()
	if !there {
		return fmt.Errorf("version %d is gone: newer ones have taken its place", want.Version)
	}
	err := s.brought(ctx, want)
	if s.have == want {
		release, s.letGo = s.letGo, release
	}
	if release != nil {
		release()
	}
	return err
}

// brought is bring while the version's folder is held.
func (s *server) brought(ctx context.Context, want *consumers.Snapshot) error {
	started, err := s.start(ctx, want)
	if err != nil {
		return err
	}
	if started || !s.serving() {
		if err := s.healthy(ctx, !started); err != nil {
			return err
		}
	}
	if !s.probed {
		// A pause that another process left would keep the probe waiting for ever.
		if err := s.control(ctx, s.speaker.Resume); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		if err := s.examine(ctx, want); err != nil {
			return err
		}
		s.probed = true
	}
	if started {
		return s.name1(ctx, want)
	}
	return s.swap(ctx, want)
}

// serving says whether the server was fit when it was last seen.
func (s *server) serving() bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.fit
}

// start starts the process on the wanted version's folder, where it is ours and does not run.
func (s *server) start(ctx context.Context, want *consumers.Snapshot) (bool, error) {
	if s.own == nil || s.own.running() {
		return false, nil
	}
	s.probed = false
	s.lacks()
	s.dropEvidence() // a new process reads every tensor, and ends where one is missing
	url, err := s.own.start(ctx, want.Dir)
	if err != nil {
		return false, err
	}
	s.pool.mu.Lock()
	s.reach(url)
	s.pool.mu.Unlock()
	return true, nil
}

// healthy waits until the server can serve. A server that ran before is told to resume, since another process may have left it paused: the health
// check of SGLang samples a token, and so does not answer during a pause.
func (s *server) healthy(ctx context.Context, ran bool) error {
	return within(ctx, s.pool.cfg.Server.StartTimeout, "start_timeout", func(ctx context.Context) error {
		tick := time.NewTicker(healthEvery)
		defer tick.Stop()
		var last error
		for {
			if ran {
				_ = s.control(ctx, s.speaker.Resume) // a server that is not there yet is waited for
			}
			if last = s.control(ctx, s.speaker.Health); last == nil {
				return nil
			}
			var ended <-chan struct{}
			if s.own != nil {
				ended = s.own.ended()
			}
			select {
			case <-ended:
				return s.own.fault()
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("not ready: %w: %w", context.Cause(ctx), last)
			}
		}
	})
}

// healthEvery is how often a server that starts is asked whether it is ready.
const healthEvery = 200 * time.Millisecond

// examine refuses a server of another model, or with settings that spoil what it samples.
func (s *server) examine(ctx context.Context, want *consumers.Snapshot) error {
	var m Model
	err := s.control(ctx, func(ctx context.Context) (err error) {
		m, err = s.speaker.Model(ctx)
		return err
	})
	if err != nil {
		if n := Status(err); n == 401 || n == 403 {
			return &SettingError{Setting: "inference.server.api_key and admin_api_key", Err: err}
		}
		return fmt.Errorf("ask for its model: %w", err)
	}
	if err := sameModel(m.Path, want.Config); err != nil {
		return err
	}
	p := s.pool
	// An episode that meets what a server keeps ends there by its tokens, a few before its limit; no setting gives these positions.
	if takes := m.MaxTokens + m.Kept; m.MaxTokens > 0 && takes < p.cfg.Longest {
		return &SettingError{Setting: fmt.Sprintf("it takes sequences of %d tokens, and trainer.limits.max_tokens lets episodes grow to %d: "+
			"start it with as many (--max-model-len, --context-length), or lower trainer.limits.max_tokens and the tasks' own", takes, p.cfg.Longest)}
	}
	longest := want.Config.MaxPositions
	if m.MaxTokens > 0 {
		longest = min(longest, m.MaxTokens)
	}
	spans, err := (&probe{
		speaker: s.speaker, vocabulary: want.Config.VocabSize, longest: longest, id: p.nextID, salt: p.nextID() + "-probe", timeout: p.cfg.Server.StallTimeout, log: p.log,
	}).run(ctx)
	if err != nil {
		return err
	}
	s.spans = spans
	p.mu.Lock()
	s.maxTokens = m.MaxTokens
	p.mu.Unlock()
	return nil
}

// name1 names the weights that a process was started with, and admits calls.
func (s *server) name1(ctx context.Context, want *consumers.Snapshot) error {
	label := s.pool.label(want.Version)
	if err := s.control(ctx, func(ctx context.Context) error { return s.speaker.SetLabel(ctx, label) }); err != nil {
		return fmt.Errorf("name the version: %w", err)
	}
	if err := s.has(ctx, label); err != nil {
		return err
	}
	s.admit(want, 0)
	return nil
}

// admit takes calls for a version that the server has.
func (s *server) admit(want *consumers.Snapshot, paused time.Duration) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s.have = want
	if s.removed || p.closed {
		return
	}
	if s.epoch != nil {
		s.epoch.seal(true)
	}
	s.epoch = &epoch{version: want.Version, dir: want.Dir, label: p.label(want.Version), sealed: make(chan struct{})}
	s.fit, s.swapping, s.paused = true, false, paused
	s.doubts, s.doubt, s.fault = 0, nil, nil
	if p.want == want || want.Version > p.version {
		p.version = want.Version
	}
	p.notify()
}
