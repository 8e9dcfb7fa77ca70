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
	// written are the bounds as the trainer wrote them to control last.
	written bounds
	// limits are what operators have set of the limits of episodes and holds, told what control had of them when it was looked at last.
	limits, told limits
	// paused is what control said last; changed are what operators have changed since the last record.
	paused  bool
	changed []checkpoint.RecordChange
}

// inForce are eta and depth as the configuration has them: depth may be admission.FollowEta.
type inForce struct{ eta, depth int }

// bounds are eta and the depth that follows from it, as control carries them.
type bounds struct{ eta, depth int }

func newControl(cfg Config, deps Deps) *control { return &control{cfg: cfg, deps: deps} }

// bounds are those that control carries.
func (c *control) bounds() bounds { return c.written }

// paced are the bounds in force as control carries them.
func (c *control) paced() bounds { return bounds{c.eta, c.cfg.limits(c.eta, c.depth).Pace()} }

// choose sets eta, depth and the limits of episodes at the start. A changed configuration wins; else the checkpoint's hold, under which
// an earlier process may have refused messages of the step that is done again, or issued tickets, and what an operator chose since is
// adopted with that step. A drain that an earlier run obeyed is over. Control is brought in line before it is followed.
func (c *control) choose(ctx context.Context, s *checkpoint.State) error {
	configured := s.ConfiguredEta != c.cfg.Eta || s.ConfiguredDepth != c.cfg.Depth
	c.inForce = inForce{s.Eta, s.Depth}
	if configured {
		c.inForce = inForce{c.cfg.Eta, c.cfg.Depth}
	}
	c.written = c.paced()
	limited := slices.ContainsFunc(Changes(s.Settings, c.deps.Settings), func(change checkpoint.RecordChange) bool { return configuredLimit(change.Key) })
	if c.limits = s.Limits; limited {
		c.limits, c.changed = nil, c.limits.changes(nil)
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

// read is what control says, nil where it says nothing or cannot be read: it is written anew with the next version.
func (c *control) read(ctx context.Context) (*schemas.Control, error) {
	now, err := c.deps.Stream.Control(ctx)
	switch {
	case errors.Is(err, streams.ErrNoControl):
		return nil, nil
	case unreadable(err):
		c.deps.Log.Warn("control is written anew with the next version", "err", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read control: %w", err)
	}
	return now, nil
}

// unreadable is whether an error is about a message, and not about how it travels.
func unreadable(err error) bool {
	for _, fault := range []error{schemas.ErrVersion, schemas.ErrKind, schemas.ErrMalformed, schemas.ErrInvalid} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// adopt takes over what an operator has written since the trainer last wrote. It asks the broker: what a watch tells may be
// older than what the trainer wrote since, and would be taken for an operator's.
func (c *control) adopt(ctx context.Context, step int64) error {
	now, err := c.read(ctx)
	if now == nil || err != nil {
		return err
	}
	if now.Paused != c.paused {
		c.note("control.paused", c.paused, now.Paused)
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
		c.note("control.eta", c.written.eta, now.Eta)
	}
	if now.Depth != c.written.depth {
		c.note("control.depth", c.written.depth, now.Depth)
	}
	c.inForce = inForce{now.Eta, depth}
	c.written = chosen
	return nil
}

// note keeps an operator's change for the record of the step in hand.
func (c *control) note(key string, before, after any) {
	c.changed = append(c.changed, checkpoint.RecordChange{Key: key, Before: fmt.Sprint(before), After: fmt.Sprint(after)})
}

// put writes what the new version means for the run and leaves alone what operators write. unfillable are groups whose
// rollouts are wasted work.
func (c *control) put(ctx context.Context, version int64, unfillable []string) error {
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
		// What differs from the last put is an operator's, to be adopted at the next step.
		if (bounds{now.Eta, now.Depth}) == c.written || now.Eta < 0 || now.Depth < 0 {
			put = c.paced()
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
