package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
)

// Pool is a [consumers.Sampler] over inference servers. Make it with New, run it with Run, give it versions as folders
// with Swap.
type Pool struct {
	cfg     consumers.Config
	kind    Kind
	log     *slog.Logger
	metrics *consumers.ServerMetrics
	// tag begins the labels of this Pool's versions, and of no other's.
	tag string
	// fatal takes the error that ends Run: no server can ever serve. Its capacity is 1.
	fatal chan error
	// versionWait is how long a call waits for newer weights before it is refused with Retry.
	versionWait time.Duration

	// setting is held while the list of servers is replaced: two lists at once would take in a server twice, with two keepers.
	setting sync.Mutex

	mu sync.Mutex
	// changed is closed, and made anew, whenever a call that waits may go on.
	changed chan struct{}
	servers []*server
	// want is the version that every server is brought to; nil before the first.
	want *consumers.Snapshot
	// offers counts the versions that were wanted, so that a server's failure is held against the right one.
	offers  int
	version int64 // the newest that calls are served with
	config  gpu.Config
	maxLen  int
	waiting int
	hits    int64
	seats   seats
	// keep starts a server's keeper; nil before Run, and after its end.
	keep func(*server)
	// leaving has the last keeper of each running server's URL that was taken out: it is closed when that keeper has ended.
	leaving map[string]chan struct{}
	closed  bool
	// requests numbers the requests to servers, so that no two have the same id.
	requests atomic.Int64
}

var (
	_ consumers.Sampler   = (*Pool)(nil)
	_ consumers.Forgetter = (*Pool)(nil)
)

// Options are the optional parts of a Pool.
type Options struct {
	Metrics *consumers.Metrics
	Log     *slog.Logger
}

// New makes a Pool of the servers that cfg names, or of the servers that it starts. cfg must be valid.
func New(cfg consumers.Config, kind Kind, o Options) *Pool {
	tag := make([]byte, 6)
	_, _ = rand.Read(tag) // never fails
	p := &Pool{
		cfg: cfg, kind: kind, log: o.Log, metrics: o.Metrics.ForServers(), tag: "weir-" + hex.EncodeToString(tag), fatal: make(chan error, 1),
		changed: make(chan struct{}), leaving: map[string]chan struct{}{}, version: -1, versionWait: time.Minute, seats: newSeats(maxEpisodes),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(cfg.Servers) > 0:
		p.Set(cfg.Servers)
	case cfg.Server.List == "":
		devices := cfg.Server.Devices
		for i := range cmp.Or(len(devices), cfg.Server.Count) {
			own := &process{kind: kind, cfg: cfg, index: i, log: p.log}
			if len(devices) > 0 {
				own.devices = devices[i]
			}
			p.addServer(p.newServer(fmt.Sprintf("%s-%d", kind.Name(), i), own))
		}
	}
	return p
}

// newFoundServer is a server that runs already.
func (p *Pool) newFoundServer(url string) *server {
	s := p.newServer(url, nil)
	s.setAddress(url)
	return s
}

// addServer takes a server in, and starts its keeper where the Pool runs.
func (p *Pool) addServer(s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = append(p.servers, s)
	if p.keep != nil {
		p.keep(s)
	}
	p.notifyWaiting()
}

// Set replaces the list of running servers: new servers are brought up beside the servers that serve, the calls of a server that is
// gone go on at the others. It changes nothing about servers that the Pool has started. A URL with a slash at its end names the same server
// without. Any goroutine may call it.
func (p *Pool) Set(urls []string) {
	p.setting.Lock()
	defer p.setting.Unlock()
	urls = slices.Clone(urls)
	for i, url := range urls {
		urls[i] = strings.TrimRight(url, "/")
	}
	p.mu.Lock()
	var gone []*server
	have := map[string]bool{}
	for _, s := range p.servers {
		switch {
		case s.own != nil:
		case slices.Contains(urls, s.name):
			have[s.name] = true
		default:
			gone = append(gone, s)
		}
	}
	p.mu.Unlock()
	for _, s := range gone {
		p.removeServer(s)
	}
	for _, url := range urls {
		if !have[url] {
			have[url] = true
			p.addServer(p.newFoundServer(url))
		}
	}
}

// removeServer takes a server out and ends its calls here; they go on at other servers.
func (p *Pool) removeServer(s *server) {
	p.mu.Lock()
	p.servers = slices.DeleteFunc(p.servers, func(have *server) bool { return have == s })
	s.state.removed = true
	s.takeDownLocked(errRemoved)
	p.metrics.ForgetEnds(s.name)
	if s.state.leave != nil {
		p.leaving[s.name] = s.ended
		s.state.leave(errRemoved)
	}
	p.notifyWaiting()
	p.mu.Unlock()
	s.kickKeeper()
}

// noteKeeperEnd notes that a server's keeper has ended.
func (p *Pool) noteKeeperEnd(s *server) {
	close(s.ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving[s.name] == s.ended {
		delete(p.leaving, s.name)
	}
}

var (
	errRemoved  = errors.New("the server was taken out")
	errStopping = errors.New("the engine is stopping")
)

// Run keeps every server at the version that is wanted until ctx ends; then it ends the calls that are left and the servers that it
// started. It fails when a server's settings are such that nothing it samples can be trained on, before any server has served.
func (p *Pool) Run(ctx context.Context) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var keepers sync.WaitGroup
	p.mu.Lock()
	p.keep = func(s *server) {
		var keep context.Context
		keep, s.state.leave = context.WithCancelCause(running)
		before := p.leaving[s.name]
		delete(p.leaving, s.name)
		keepers.Go(func() {
			if before != nil { // a single keeper at a time: a load of the other must not land after this keeper's
				<-before
			}
			s.runKeeper(keep)
			p.noteKeeperEnd(s)
		})
	}
	for _, s := range p.servers {
		p.keep(s)
	}
	p.mu.Unlock()
	if p.cfg.Server.List != "" {
		keepers.Go(func() { p.readList(running) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-p.fatal:
	}
	p.mu.Lock()
	p.keep, p.closed = nil, true
	for _, s := range p.servers {
		s.takeDownLocked(errStopping)
	}
	p.notifyWaiting()
	p.mu.Unlock()
	cancel()
	keepers.Wait()
	return err
}

// Swap has every server load a version, and returns when the first serves with it. The others follow, as do servers
// that come up later. It fails where each server that is up has failed to load the version; the version before stays wanted.
func (p *Pool) Swap(ctx context.Context, s consumers.Snapshot) (consumers.Swapped, error) {
	fail := func(err error) (consumers.Swapped, error) {
		return consumers.Swapped{}, fmt.Errorf("swap to version %d: %w", s.Version, err)
	}
	switch {
	case s.Version < 0 || s.Version > math.MaxInt32:
		return fail(fmt.Errorf("%w: the version is out of range", consumers.ErrBadWeights))
	case s.Dir == "":
		return fail(fmt.Errorf("%w: the snapshot has no folder", consumers.ErrBadWeights))
	}
	before, offer, err := p.offerVersion(s)
	if err != nil {
		return fail(err)
	}
	for {
		p.mu.Lock()
		done, closed, pause, changed, fault := p.offerResult(s, offer)
		if fault != nil {
			p.want = before
			p.offers++
		}
		p.mu.Unlock()
		switch {
		case done:
			return consumers.Swapped{Pause: pause}, nil
		case fault != nil:
			return fail(fault)
		case closed:
			return fail(consumers.ErrStopped)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}

// offerVersion makes a version the wanted version.
func (p *Pool) offerVersion(s consumers.Snapshot) (before *consumers.Snapshot, number int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want == nil {
		if err := s.Config.Validate(); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", consumers.ErrBadWeights, err)
		}
		p.config, p.maxLen = s.Config, s.Config.MaxPositions
		if p.cfg.MaxTokens > 0 {
			p.maxLen = min(p.maxLen, p.cfg.MaxTokens)
		}
	} else if !consumers.SameModel(p.config, s.Config) {
		return nil, 0, fmt.Errorf("%w: the model configuration is %+v where the one in use is %+v", consumers.ErrBadWeights, s.Config, p.config)
	}
	before, p.want = p.want, &s
	p.offers++
	for _, server := range p.servers {
		server.state.fault = nil
		server.kickKeeper()
	}
	return before, p.offers, nil
}

// offerResult reports how far a version is: in use at a server, or failed at each.
func (p *Pool) offerResult(want consumers.Snapshot, offer int) (done, closed bool, pause time.Duration, changed <-chan struct{}, fault error) {
	failed := 0
	for _, s := range p.servers {
		if s.state.fit && s.state.epoch.version == want.Version && s.state.epoch.dir == want.Dir {
			return true, p.closed, s.state.paused, p.changed, nil
		}
		if s.state.fault != nil && s.state.faultOf == offer {
			failed++
			fault = errors.Join(fault, fmt.Errorf("%s: %w", s.name, s.state.fault))
		}
	}
	if failed < len(p.servers) {
		fault = nil
	}
	return false, p.closed, 0, p.changed, fault
}

// Version is the newest version that calls are served with; -1 before the first.
func (p *Pool) Version() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

// Load counts the calls at all servers, and the calls that wait for a server.
func (p *Pool) Load() consumers.Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := consumers.Load{Waiting: p.waiting, Idle: p.seats.countIdle(), PrefixHits: p.hits}
	for _, s := range p.servers {
		l.Running += len(s.state.leases)
	}
	return l
}

// Forget sends no further call of an episode to where its cache is.
func (p *Pool) Forget(episode string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seats.forgetEpisode(episode)
}

// notifyWaiting wakes the calls that wait for a change. The caller holds mu.
func (p *Pool) notifyWaiting() {
	close(p.changed)
	p.changed = make(chan struct{})
	fit := 0
	for _, s := range p.servers {
		if s.state.fit {
			fit++
		}
	}
	p.metrics.Fit.Set(float64(fit))
}

// labelOf is a version's name at every server.
func (p *Pool) labelOf(version int64) string { return fmt.Sprintf("%s-v%d", p.tag, version) }
