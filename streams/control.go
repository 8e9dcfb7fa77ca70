package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/schemas"
)

// controlKey is the one key of CONTROL.
const controlKey = "control"

// ErrNoControl says that nothing was ever written to the run's control.
var ErrNoControl = errors.New("no control written")

// PutControl tells the whole run; what was told before no longer holds.
func (r *Run) PutControl(ctx context.Context, control *schemas.Control) error {
	if err := r.own(control.Run, control.Validate()); err != nil {
		return err
	}
	data, err := schemas.Marshal(control)
	if err != nil {
		return err
	}
	return r.call(ctx, "put control", r.names.control, func(ctx context.Context) error {
		kv, err := r.js.KeyValue(ctx, r.names.control)
		if err != nil {
			return err
		}
		_, err = kv.Put(ctx, controlKey, data)
		return err
	})
}

// Control is what was told last; [ErrNoControl] if nothing was.
func (r *Run) Control(ctx context.Context) (*schemas.Control, error) {
	data, _, err := r.last(ctx, r.names.control, controlKey)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fmt.Errorf("run %s: %w", r.run, ErrNoControl)
	}
	return r.readControl(data)
}

// FollowControl calls fn with what holds now, if anything does, and with whatever is told later; what was
// overtaken while fn ran is skipped. It returns nil when ctx ends. Control that cannot be read is logged and skipped.
func (r *Run) FollowControl(ctx context.Context, fn func(*schemas.Control)) error {
	return r.follow(ctx, r.names.control, controlKey, func(data []byte, revision uint64) error {
		control, err := r.readControl(data)
		if err != nil {
			r.log.Error("unreadable control skipped", "revision", revision, "err", err)
			return nil
		}
		fn(control)
		return nil
	})
}

func (r *Run) readControl(data []byte) (*schemas.Control, error) {
	control := new(schemas.Control)
	if err := schemas.Unmarshal(data, control); err != nil {
		return nil, err
	}
	return control, r.own(control.Run, control.Validate())
}

// own is fault, or that a message names another run.
func (r *Run) own(run string, fault error) error {
	if fault == nil && run != r.run {
		return fmt.Errorf("%w: a message of run %q in run %q", schemas.ErrInvalid, run, r.run)
	}
	return fault
}
