package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// Pool starts programs in sandboxes, within a bound on how many run at once.
type Pool struct {
	cfg  Config
	tier string
	// slots holds a number for each sandbox that may still be started; with root's pool, the user id is counted by it.
	slots   chan int
	waiting atomic.Int64
	started atomic.Uint64
	taken   atomic.Uint64 // places
	// uids is the first user id; 0 where programs run as this process's user.
	uids int
	// without is a defence that is left out, in this package's tests alone.
	without string

	// over is closed by Close.
	over chan struct{}

	mu   sync.Mutex
	seat *seat // nil before the first start, and after a keeper has gone
}

// Open finds the tier, or refuses with a [RefusedError] that explains the cause and the remedy. It starts a program with the
// very command line that programs are started with later, and checks what the program may do. Close ends the pool.
//
// With Loopback among the needs, a tier that confines programs and gives them no network of their own is refused too: [Spec.Port] needs one.
func Open(ctx context.Context, cfg Config, needs ...Need) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if cfg.Tier == TierCommand {
		var err error
		if cfg.Command, err = absoluteProgram(cfg.Command); err != nil {
			return nil, err
		}
	}
	loopback := slices.Contains(needs, Loopback)
	p := newPool(cfg)
	tiers := []string{cfg.Tier}
	switch {
	case cfg.Tier == TierLandlock && loopback:
		return nil, lacksLoopback(cfg.Tier)
	case cfg.Tier == TierAuto && loopback:
		tiers = []string{TierFull}
	case cfg.Tier == TierAuto:
		tiers = []string{TierFull, TierLandlock}
	}
	var refusals []error
	for _, tier := range tiers {
		p.tier = tier
		err := p.probeTier(ctx)
		if err == nil {
			return p, nil
		}
		refusals = append(refusals, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(append(refusals, p.Close())...)
}

// absoluteProgram is a command line with its program by an absolute path: the keeper that starts it has no PATH, and another
// folder.
func absoluteProgram(command []string) ([]string, error) {
	name, err := exec.LookPath(command[0])
	if err == nil {
		name, err = filepath.Abs(name)
	}
	if err != nil {
		return nil, &RefusedError{Tier: TierCommand, Cause: fmt.Sprintf("sandbox.command: %v", err), Remedy: "install it, or name it by its path"}
	}
	return append([]string{name}, command[1:]...), nil
}

// Need is a need that a pool's programs have of its tier.
type Need int

// Loopback is a network of the program's own, with nothing but 127.0.0.1 in it.
const Loopback Need = iota + 1

// Lacks is the refusal of a pool's tier that gives programs less than they need.
func (p *Pool) Lacks(needs ...Need) error {
	if p.tier == TierLandlock && slices.Contains(needs, Loopback) {
		return lacksLoopback(p.tier)
	}
	return nil
}

func lacksLoopback(tier string) error {
	return &RefusedError{
		Tier: tier, Cause: "an agent that is a command asks the policy at 127.0.0.1, and programs in this tier have no network of their own",
		Remedy: "install bubblewrap and leave sandbox.tier at auto, or run the agent without a sandbox by agents.NAME.sandbox: false",
	}
}

func newPool(cfg Config) *Pool {
	cfg.Limits = cfg.Or(defaultLimits())
	p := &Pool{cfg: cfg, slots: make(chan int, cfg.Most), uids: firstUID(cfg), over: make(chan struct{})}
	for slot := range cfg.Most {
		p.slots <- slot
	}
	return p
}

// Tier is the tier that programs run in: full, landlock, command or none.
func (p *Pool) Tier() string { return p.tier }

// Config is the pool's configuration, its limits filled in.
func (p *Pool) Config() Config { return p.cfg }

// Stats are counts of a pool.
type Stats struct {
	// Running counts the places that are taken, Waiting the callers that wait for a place; Started counts sandboxes since Open.
	Running, Waiting int
	Started          uint64
}

// Stats are the pool's at this moment.
func (p *Pool) Stats() Stats {
	return Stats{Running: p.cfg.Most - len(p.slots), Waiting: int(p.waiting.Load()), Started: p.started.Load()}
}

// Start runs a program. It waits for a place, in a bounded queue. Errors that wrap producers.ErrUnavailable are the
// machinery's. If the program cannot be started, [Process.Wait] returns the error, or Start does where the keeper knows it at
// once.
func (p *Pool) Start(ctx context.Context, spec Spec) (*Process, error) {
	return p.startProcess(ctx, spec, false)
}

// StartFirst is Start of a program that is made to be the first of its process namespace: it waits for orphans, and the signals that it has no
// handler for do not reach it from inside.
func (p *Pool) StartFirst(ctx context.Context, spec Spec) (*Process, error) {
	return p.startProcess(ctx, spec, true)
}

func (p *Pool) startProcess(ctx context.Context, spec Spec, first bool) (*Process, error) {
	place, err := p.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer place.Leave() // it is free when the program has ended
	return place.startProcess(ctx, spec, first)
}

func (p *Pool) newLaunch(spec Spec, slot int, first bool) *launch {
	l := &launch{
		Tier: p.tier, Command: p.cfg.Command, Argv: spec.Argv, Env: spec.Env, Binds: spec.Binds, Dir: spec.Dir, Port: spec.Port,
		Limits: spec.Limits.Or(p.cfg.Limits), First: first, Without: p.without,
	}
	for name := range spec.Files {
		l.Files = append(l.Files, name)
	}
	if p.uids > 0 {
		l.UID = p.uids + slot
	}
	return l
}

// currentSeat is the keeper, started where there is none.
func (p *Pool) currentSeat() (*seat, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isOver() {
		return nil, closedError()
	}
	if p.seat != nil && !p.seat.isGone() {
		return p.seat, nil
	}
	s, err := newSeat()
	if err != nil {
		return nil, unavailableError("start the keeper of sandboxes: %v", err)
	}
	p.seat = s
	return s, nil
}

// isOver reports whether the pool is closed.
func (p *Pool) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

func closedError() error { return unavailableError("the pool of sandboxes is closed") }

// Close ends every sandbox and every wait for a place, and returns when no sandbox is left.
func (p *Pool) Close() error {
	p.mu.Lock()
	if !p.isOver() {
		close(p.over)
	}
	s := p.seat
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.closeKeeper()
}
