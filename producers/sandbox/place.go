package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-rl/weir/producers"
)

// Place is a place of a pool. Its holder keeps it from program to program, until Leave: it runs one program at a time.
type Place struct {
	pool *Pool
	slot int
	// idle holds an entry while no program runs here. over is closed by Leave.
	idle chan struct{}
	over chan struct{}

	mu   sync.Mutex
	left bool
}

// Take waits for a place of the pool, in a bounded queue, until the pool is closed. Errors wrap producers.ErrUnavailable, and
// producers.ErrNoRoom where all places are taken.
func (p *Pool) Take(ctx context.Context) (*Place, error) { return p.TakeWithin(ctx, 0) }

// TakeWithin is Take that gives up where nobody has got a place of the pool for as long as patience; 0 never does.
func (p *Pool) TakeWithin(ctx context.Context, patience time.Duration) (*Place, error) {
	if p.isOver() {
		return nil, closedError()
	}
	if place := p.TryTake(); place != nil {
		return place, nil
	}
	if n := p.waiting.Add(1); n > int64(p.cfg.Queue) {
		p.waiting.Add(-1)
		return nil, fmt.Errorf("%w: all %d sandboxes are in use and %d starts wait: raise sandbox.most, or lower producer.concurrency",
			producers.ErrNoRoom, p.cfg.Most, p.cfg.Queue)
	}
	defer p.waiting.Add(-1)
	wait := producers.NewPatience(patience, &p.taken)
	defer wait.Stop()
	for {
		select {
		case slot := <-p.slots:
			return p.newPlace(slot), nil
		case <-wait.Look():
			if wait.IsOver() {
				return nil, fmt.Errorf("%w: all %d sandboxes were in use, and none came free for %s: raise sandbox.most, or lower producer.concurrency",
					producers.ErrNoRoom, p.cfg.Most, patience)
			}
		case <-p.over:
			return nil, closedError()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: all %d sandboxes were in use: %s", producers.ErrNoRoom, p.cfg.Most, context.Cause(ctx).Error())
		}
	}
}

// TryTake is a place that is free now, and nil where none is.
func (p *Pool) TryTake() *Place {
	select {
	case slot := <-p.slots:
		return p.newPlace(slot)
	default:
		return nil
	}
}

func (p *Pool) newPlace(slot int) *Place {
	place := &Place{pool: p, slot: slot, idle: make(chan struct{}, 1), over: make(chan struct{})}
	place.idle <- struct{}{}
	p.taken.Add(1)
	return place
}

// Start is [Pool.Start] on this place. It waits until the program before has ended.
func (pl *Place) Start(ctx context.Context, spec Spec) (*Process, error) {
	return pl.startProcess(ctx, spec, false)
}

// StartFirst is [Pool.StartFirst] on this place. It waits until the program before has ended.
func (pl *Place) StartFirst(ctx context.Context, spec Spec) (*Process, error) {
	return pl.startProcess(ctx, spec, true)
}

// Limits are the limits of the pool's programs.
func (pl *Place) Limits() Limits { return pl.pool.cfg.Limits }

// Leave gives the place back to the pool: now, or when the program that runs here has ended. A second Leave does nothing.
func (pl *Place) Leave() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.left {
		return
	}
	pl.left = true
	close(pl.over)
	select {
	case <-pl.idle:
		pl.pool.slots <- pl.slot
	default: // the end of the program gives it back
	}
}

// endProgram notes that no program runs here any more.
func (pl *Place) endProgram() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.left {
		pl.pool.slots <- pl.slot
		return
	}
	pl.idle <- struct{}{}
}

// awaitIdle waits until no program runs here, and takes the place for the next.
func (pl *Place) awaitIdle(ctx context.Context) error {
	select {
	case <-pl.idle:
		return nil
	default:
	}
	select {
	case <-pl.idle:
		return nil
	case <-pl.over:
		return unavailableError("start a sandbox: its place was given back")
	case <-ctx.Done():
		return unavailableError("start a sandbox: the sandbox before it has not ended: %v", context.Cause(ctx))
	}
}

func (pl *Place) startProcess(ctx context.Context, spec Spec, first bool) (*Process, error) {
	p := pl.pool
	if err := p.checkStart(spec); err != nil {
		return nil, fmt.Errorf("start a sandbox: %w", err)
	}
	if err := pl.awaitIdle(ctx); err != nil {
		return nil, err
	}
	seat, err := p.currentSeat()
	if err != nil {
		pl.endProgram()
		return nil, err
	}
	process, err := seat.startProcess(p.newLaunch(spec, pl.slot, first), spec.Files, pl.endProgram)
	if err != nil {
		return nil, unavailableError("start a sandbox: %v", err)
	}
	p.started.Add(1)
	return process.awaitStart(ctx, spec.Port > 0)
}

// checkStart returns the faults of a program that this pool cannot start.
func (p *Pool) checkStart(spec Spec) error {
	if err := spec.checkSpec(); err != nil {
		return err
	}
	if spec.Port > 0 && p.tier != TierFull {
		return errors.New("port: tier " + p.tier + " has no network of its own: it needs tier full")
	}
	return nil
}

// awaitStart returns the process when its program runs, and where it has a port, when this is heard.
func (p *Process) awaitStart(ctx context.Context, listens bool) (*Process, error) {
	select {
	case <-p.start:
	case <-p.ended:
		select {
		case <-p.start: // and has ended since
		default:
			why := p.whyNot() // before its standard error is closed
			p.hangUp()
			return nil, unavailableError("start a sandbox: %s", why)
		}
	case <-ctx.Done():
		p.Close()
		return nil, fmt.Errorf("start a sandbox: %w", context.Cause(ctx))
	}
	if listens {
		if err := p.awaitListener(ctx); err != nil {
			p.Close()
			return nil, unavailableError("start a sandbox: %v", err)
		}
	}
	return p, nil
}
