package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// Pinned serves calls that name the only version which may sample, as the calls of evaluation tickets do. It holds a single version at a
// time, with weights and caches of its own beside the weights that follow the trainer, from the first call that names the version until a
// call names another, or until no call has come for PinnedOptions.Idle. Calls of another version wait until the calls before them have
// ended.
type Pinned struct {
	opts PinnedOptions
	// users gives a unit to each call, and all units to the goroutine that changes held.
	users *semaphore.Weighted
	held  *pinnedVersion // nil is none
	// used is when a call last ended, in nanoseconds.
	used atomic.Int64
}

// PinnedOptions configure a Pinned.
type PinnedOptions struct {
	// Make makes the Sampler of a version. It is not run and has no weights.
	Make func() Sampler
	// Load fetches a published version. An error that is none of ctx's refuses the calls that wait for the version.
	Load func(ctx context.Context, version int64) (Snapshot, error)
	// Idle is how long weights that no call asks for are kept; 0 is a minute.
	Idle time.Duration
	// Metrics may be nil.
	Metrics *Metrics
	// Log may be nil.
	Log *slog.Logger
}

// pinnedVersion is a sampler that has a single version and gets no other.
type pinnedVersion struct {
	version int64
	sampler Sampler
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the sampler's Run has returned
}

const (
	// everyUser is more calls than run at once.
	everyUser = 1 << 30
	// pinnedIdle is longer than the agents of an evaluation are all busy with tools.
	pinnedIdle = time.Minute
)

// NewPinned makes a Pinned that holds no weights.
func NewPinned(o PinnedOptions) *Pinned {
	if o.Idle <= 0 {
		o.Idle = pinnedIdle
	}
	o.Metrics, o.Log = orUnseen(o.Metrics), orDiscard(o.Log)
	return &Pinned{opts: o, users: semaphore.NewWeighted(everyUser)}
}

// Serve answers the run's pinned calls under the name of an engine until ctx ends, and lets go of the weights then.
func (p *Pinned) Serve(ctx context.Context, run generate.Run, engine string) error {
	group, soft := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := generate.Serve(soft, generate.Pinned(run), engine, p.Generate, generate.WithForget(p.Forget))
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve pinned calls as %s: %w", engine, err)
		}
		return nil
	})
	group.Go(func() error {
		tick := time.NewTicker(max(p.opts.Idle/4, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-soft.Done():
				return nil
			case now := <-tick.C:
				p.dropIdle(now)
			}
		}
	})
	err := group.Wait()
	if err := p.users.Acquire(context.WithoutCancel(ctx), everyUser); err == nil {
		p.dropVersion()
		p.users.Release(everyUser)
	}
	return err
}

// Generate serves a call with the version that the call names, as [Sampler.Generate] does with the newest.
func (p *Pinned) Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	held, err := p.holdVersion(ctx, req.MinVersion)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("generate for episode %q: %w", req.Episode, context.Cause(ctx))
		}
		p.opts.Log.Warn("a pinned version cannot be sampled", "policy_version", req.MinVersion, "err", err)
		return emitChunk(req, &schemas.GenerateChunk{
			Done: true, Stop: schemas.GenerateError, Retry: errors.Is(err, ErrStopped), Error: fmt.Sprintf("version %d: %v", req.MinVersion, err),
		}, emit)
	}
	defer func() {
		p.used.Store(time.Now().UnixNano())
		p.users.Release(1)
	}()
	return held.sampler.Generate(ctx, req, func(c *schemas.GenerateChunk) error {
		p.opts.Metrics.pinned.Add(float64(len(c.Tokens)))
		return emit(c)
	})
}

// Forget frees the cache of an episode that will not call again.
func (p *Pinned) Forget(episode string) {
	if !p.users.TryAcquire(1) {
		return // the caches go with the weights
	}
	defer p.users.Release(1)
	if p.held == nil {
		return
	}
	if f, ok := p.held.sampler.(Forgetter); ok {
		f.Forget(episode)
	}
}

// holdVersion takes a unit of users for a version, and has the version loaded where it is not held.
func (p *Pinned) holdVersion(ctx context.Context, version int64) (*pinnedVersion, error) {
	if err := p.users.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if p.held.isVersion(version) {
		return p.held, nil
	}
	p.users.Release(1)
	// Whoever asks for the whole goes before every call that comes later.
	if err := p.users.Acquire(ctx, everyUser); err != nil {
		return nil, err
	}
	if !p.held.isVersion(version) {
		if err := p.replaceVersion(ctx, version); err != nil {
			p.users.Release(everyUser)
			return nil, err
		}
	}
	p.users.Release(everyUser - 1)
	return p.held, nil
}

// isVersion reports whether the version is this one and its sampler still works.
func (v *pinnedVersion) isVersion(version int64) bool {
	if v == nil || v.version != version {
		return false
	}
	select {
	case <-v.ended:
		return false
	default:
		return true
	}
}

// replaceVersion puts a version in the place of the held version, which goes first, so that there is never a third set of weights.
func (p *Pinned) replaceVersion(ctx context.Context, version int64) error {
	p.dropVersion()
	s, err := p.opts.Load(ctx, version)
	if err != nil {
		return err
	}
	if s.Version != version {
		return fmt.Errorf("%w: version %d came in its place", ErrBadWeights, s.Version)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	made := &pinnedVersion{version: version, sampler: p.opts.Make(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(made.ended)
		if err := made.sampler.Run(life); err != nil {
			p.opts.Log.Error("the sampler of a pinned version failed", "policy_version", version, "err", err)
		}
	}()
	if _, err := made.sampler.Swap(ctx, s); err != nil {
		made.endVersion()
		return err
	}
	p.held = made
	p.used.Store(time.Now().UnixNano())
	p.opts.Metrics.pinnedVersion.Set(float64(version))
	p.opts.Log.Info("a pinned version is sampled beside the newest", "policy_version", version)
	return nil
}

func (v *pinnedVersion) endVersion() {
	v.cancel()
	<-v.ended
}

// dropVersion lets go of the weights that are held. The caller has all of users.
func (p *Pinned) dropVersion() {
	if p.held == nil {
		return
	}
	p.held.endVersion()
	p.held = nil
	p.opts.Metrics.pinnedVersion.Set(-1)
}

// dropIdle lets go of weights that no call has asked for since PinnedOptions.Idle before now.
func (p *Pinned) dropIdle(now time.Time) {
	if !p.users.TryAcquire(everyUser) {
		return
	}
	defer p.users.Release(everyUser)
	if p.held != nil && now.UnixNano()-p.used.Load() >= p.opts.Idle.Nanoseconds() {
		p.opts.Log.Info("a pinned version is asked for no more", "policy_version", p.held.version)
		p.dropVersion()
	}
}
