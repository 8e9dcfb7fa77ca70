package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// control holds the bounds in force, which operators change through the run's control key.
type control struct {
	cfg  Config
	deps Deps
	inForce
	// written are the bounds of the trainer's last write to control.
	written bounds
	// limits are the operators' limits of episodes in force; told are the limits that control had when it was read last.
	limits, told limits
	// paused is the last value of control; changed are the operators' changes since the last record.
	paused  bool
	changed []checkpoint.RecordChange
}

// inForce are eta and depth as the configuration has them: depth may be admission.FollowEta.
type inForce struct{ eta, depth int }

// bounds are eta and the depth that follows from it, as control carries them.
type bounds struct{ eta, depth int }

func newControl(cfg Config, deps Deps) *control { return &control{cfg: cfg, deps: deps} }

// writtenBounds returns the bounds that control carries.
func (c *control) writtenBounds() bounds { return c.written }

// boundsInForce returns the bounds in force, in the form in which control carries them.
func (c *control) boundsInForce() bounds {
	return bounds{c.eta, c.cfg.admissionLimits(c.eta, c.depth).Pace()}
}

// chooseBounds sets eta, depth and the limits of episodes at the start. A changed configuration wins. Otherwise the checkpoint's bounds
// hold: under them an earlier process may have refused messages of the step that is done again, or issued tickets. An operator's later
// choice is adopted with that step. A drain of an earlier run is over. Control is brought in line before it is followed.
func (c *control) chooseBounds(ctx context.Context, s *checkpoint.State) error {
	configured := s.ConfiguredEta != c.cfg.Eta || s.ConfiguredDepth != c.cfg.Depth
	c.inForce = inForce{s.Eta, s.Depth}
	if configured {
		c.inForce = inForce{c.cfg.Eta, c.cfg.Depth}
	}
	c.written = c.boundsInForce()
	limited := slices.ContainsFunc(Changes(s.Settings, c.deps.Settings), func(change checkpoint.RecordChange) bool { return isLimitKey(change.Key) })
	if c.limits = s.Limits; limited {
		c.limits, c.changed = nil, c.limits.changesTo(nil)
	}
	c.told = c.limits
	err := c.deps.Stream.UpdateControl(ctx, func(now *schemas.Control) *schemas.Control {
		if now == nil {
			return nil
		}
		c.paused = now.Paused
		was := *now
		now.Draining = false
		if configured {
			now.Eta, now.Depth = c.written.eta, c.written.depth
		}
		if limited {
			now.Limits = nil
		}
		if now.Draining == was.Draining && now.Eta == was.Eta && now.Depth == was.Depth && len(now.Limits) == len(was.Limits) {
			return nil
		}
		return now
	})
	if err != nil {
		return fmt.Errorf("bring control in line: %w", err)
	}
	return nil
}

// readControl returns the control message, nil where there is none or where it cannot be read: the next version writes it anew.
func (c *control) readControl(ctx context.Context) (*schemas.Control, error) {
	now, err := c.deps.Stream.Control(ctx)
	switch {
	case errors.Is(err, streams.ErrNoControl):
		return nil, nil
	case isContentFault(err):
		c.deps.Log.Warn("control is written anew with the next version", "err", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read control: %w", err)
	}
	return now, nil
}

// isContentFault reports whether an error is about the content of a message, and not about its transport.
func isContentFault(err error) bool {
	for _, fault := range []error{schemas.ErrVersion, schemas.ErrKind, schemas.ErrMalformed, schemas.ErrInvalid} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// adoptChanges takes over an operator's changes since the trainer last wrote. It reads from the broker: a watch may deliver a value older
// than the trainer's own last write, which would be taken for an operator's change.
func (c *control) adoptChanges(ctx context.Context, step int64) error {
	now, err := c.readControl(ctx)
	if now == nil || err != nil {
		return err
	}
	if now.Paused != c.paused {
		c.recordChange("control.paused", c.paused, now.Paused)
		c.paused = now.Paused
	}
	c.adoptLimits(now, step)
	chosen := bounds{now.Eta, now.Depth}
	if chosen == c.written {
		return nil
	}
	depth := c.depth
	if now.Depth != c.written.depth || depth != admission.FollowEta {
		depth = min(now.Depth, now.Eta)
	}
	if now.Eta < 0 || now.Depth < 0 {
		c.deps.Log.Warn("control refused: eta and depth must not be negative", "eta", now.Eta, "depth", now.Depth)
		return nil
	}
	c.deps.Log.Info("bounds changed by control", "eta", now.Eta, "depth", depth, "eta_before", c.eta, "depth_before", c.depth)
	if now.Eta != c.written.eta {
		c.recordChange("control.eta", c.written.eta, now.Eta)
	}
	if now.Depth != c.written.depth {
		c.recordChange("control.depth", c.written.depth, now.Depth)
	}
	c.inForce = inForce{now.Eta, depth}
	c.written = chosen
	return nil
}

// recordChange keeps an operator's change for the record of the step in hand.
func (c *control) recordChange(key string, before, after any) {
	c.changed = append(c.changed, checkpoint.RecordChange{Key: key, Before: fmt.Sprint(before), After: fmt.Sprint(after)})
}

// putVersion writes the new version and its bounds to control and keeps the operators' fields. unfillable are groups whose rollouts are
// wasted work.
func (c *control) putVersion(ctx context.Context, version int64, unfillable []string) error {
	var put bounds
	var told limits
	err := c.deps.Stream.UpdateControl(ctx, func(now *schemas.Control) *schemas.Control {
		if now == nil {
			now = &schemas.Control{Run: c.deps.Stream.Name(), Eta: c.written.eta, Depth: c.written.depth, Limits: c.told}
		}
		if told = c.told; slices.Equal(now.Limits, told) {
			told = c.limits
			now.Limits = told
		}
		put = c.written
		// A difference from the last put is an operator's change, to be adopted at the next step.
		if (bounds{now.Eta, now.Depth}) == c.written || now.Eta < 0 || now.Depth < 0 {
			put = c.boundsInForce()
			now.Eta, now.Depth = put.eta, put.depth
		}
		now.PolicyVersion = version
		now.MinVersion = max(0, version-int64(c.eta))
		now.Cancelled = unfillable
		now.At = c.deps.Now().UTC()
		return now
	})
	if err != nil {
		return fmt.Errorf("put control: %w", err)
	}
	c.written, c.told = put, told
	return nil
}
