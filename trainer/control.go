package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// errDrained ends the wait for a batch when an operator drains the run.
var errDrained = errors.New("the run is draining")

// follower learns of a drain while the trainer waits.
type follower struct {
	drain  context.CancelCauseFunc
	waits  context.Context //nolint:containedctx // it is what follower gives out: it ends with the drain
	cancel context.CancelFunc
	ended  chan struct{}
}

// follow watches the control key until stop.
func follow(ctx context.Context, s Stream, log *slog.Logger) *follower {
	f := &follower{ended: make(chan struct{})}
	f.waits, f.drain = context.WithCancelCause(ctx)
	watch, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	go func() {
		defer close(f.ended)
		keepOn(watch, func() error {
			return s.FollowControl(watch, func(c *schemas.Control) {
				if c.Draining {
					f.drain(errDrained)
				}
			})
		}, func(err error, wait time.Duration) {
			log.Warn("control is not followed: draining goes unnoticed until it is again", "again_in", wait, "err", err)
		})
	}()
	return f
}

// Waits before what was followed is followed again.
const (
	firstAgain = 100 * time.Millisecond
	lastAgain  = 10 * time.Second
)

// keepOn calls until it returns nil or ctx ends, with a wait after each error that warn is told of before.
func keepOn(ctx context.Context, call func() error, warn func(err error, wait time.Duration)) {
	for wait := firstAgain; ; wait = min(2*wait, lastAgain) {
		err := call()
		if err == nil || ctx.Err() != nil {
			return
		}
		warn(err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// context ends with errDrained as its cause when the run is drained. Its parent is the one given to follow.
func (f *follower) context() context.Context { return f.waits }

func (f *follower) stop() {
	f.cancel()
	<-f.ended
	f.drain(nil)
}

// chooseBounds sets eta and depth at the start. A changed configuration wins; else the checkpoint's hold, under which an
// earlier process may have refused messages of the step that is done again, and what an operator chose since is adopted
// with that step. A drain that an earlier run obeyed is over. Control is brought in line before it is followed.
func (t *trainer) chooseBounds(ctx context.Context, s *checkpoint.State) error {
	configured := s.ConfiguredEta != t.cfg.Eta || s.ConfiguredDepth != t.cfg.Depth
	err := t.deps.Stream.UpdateControl(ctx, func(c *schemas.Control) *schemas.Control {
		t.eta, t.depth = s.Eta, s.Depth
		if configured {
			t.eta, t.depth = t.cfg.Eta, t.cfg.Depth
		}
		t.put = bounds{t.eta, t.cfg.limits(t.eta, t.depth).Pace()}
		if c == nil {
			return nil
		}
		was := *c
		c.Draining = false
		if configured {
			c.Eta, c.Depth = t.put.eta, t.put.depth
		}
		if c.Draining == was.Draining && c.Eta == was.Eta && c.Depth == was.Depth {
			return nil
		}
		return c
	})
	if err != nil {
		return fmt.Errorf("bring control in line: %w", err)
	}
	return nil
}

// refuseOrphan keeps a run whose checkpoint folder was lost from beginning again under the same name.
func (t *trainer) refuseOrphan(ctx context.Context) error {
	c, err := t.readControl(ctx)
	if err != nil {
		return err
	}
	// Either may be gone without the other.
	published, err := t.deps.Stream.Published(ctx)
	if err != nil {
		return fmt.Errorf("read the newest published version: %w", err)
	}
	if c != nil {
		published = max(published, c.PolicyVersion)
	}
	if published == 0 {
		return nil
	}
	return fmt.Errorf("run %s has published version %d, but %s holds no checkpoint: name the run's own checkpoint folder, or a new run",
		t.deps.Stream.Run(), published, t.store.Dir())
}

// bounds are eta and the depth in force, as control carries them.
type bounds struct{ eta, depth int }

// adoptBounds takes over what an operator has written since the trainer last wrote. It asks the broker: what a watch
// tells may be older than what the trainer wrote since, and would be taken for an operator's.
func (t *trainer) adoptBounds(ctx context.Context) error {
	c, err := t.readControl(ctx)
	if c != nil {
		t.adopt(c)
	}
	return err
}

// readControl is what control says, nil where it says nothing or cannot be read: it is written anew with the next version.
func (t *trainer) readControl(ctx context.Context) (*schemas.Control, error) {
	c, err := t.deps.Stream.Control(ctx)
	switch {
	case errors.Is(err, ErrUnreadable):
		t.deps.Log.Warn("control is written anew with the next version", "err", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read control: %w", err)
	}
	return c, nil
}

func (t *trainer) adopt(c *schemas.Control) {
	now := bounds{c.Eta, c.Depth}
	if now == t.put {
		return
	}
	depth := t.depth
	if c.Depth != t.put.depth || depth != admission.FollowEta {
		depth = min(c.Depth, c.Eta)
	}
	if c.Eta < 0 || c.Depth < 0 {
		t.deps.Log.Warn("control refused: eta and depth must not be negative", "eta", c.Eta, "depth", c.Depth)
		return
	}
	t.deps.Log.Info("bounds changed by control", "eta", c.Eta, "depth", depth, "eta_before", t.eta, "depth_before", t.depth)
	t.eta, t.depth = c.Eta, depth
	t.put = now
}

// putControl writes what the new version means for the run and leaves alone what operators write.
func (t *trainer) putControl(ctx context.Context) error {
	var put bounds
	err := t.deps.Stream.UpdateControl(ctx, func(c *schemas.Control) *schemas.Control {
		if c == nil {
			c = &schemas.Control{Run: t.deps.Stream.Run(), Eta: t.put.eta, Depth: t.put.depth}
		}
		put = t.put
		// What differs from the last put is an operator's, to be adopted at the next step.
		if (bounds{c.Eta, c.Depth}) == t.put || c.Eta < 0 || c.Depth < 0 {
			put = bounds{t.eta, t.cfg.limits(t.eta, t.depth).Pace()}
			c.Eta, c.Depth = put.eta, put.depth
		}
		c.PolicyVersion = t.step
		c.MinVersion = max(0, t.step-int64(t.eta))
		c.Cancelled = t.assembler.Hopeless()
		c.At = t.deps.Now().UTC()
		return c
	})
	if err != nil {
		return fmt.Errorf("put control: %w", err)
	}
	t.put = put
	return nil
}
