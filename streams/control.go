package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/schemas"
)

// controlKey is the key of CONTROL that has the settings of the run; seatKey names its trainer, archiveKey and keepKey belong to its
// archive.
const controlKey = "control"

// ErrNoControl is returned when nothing was ever written to the run's control.
var ErrNoControl = errors.New("no control written")

// UpdateControl changes the run's control. change gets the control of now, nil if there is none or it cannot be read, and returns the
// new control, or nil to leave the control as it is. When another process wrote in between, change is called again with the newer
// control: so the trainer and an operator never undo each other's changes, as long as each changes its own fields.
func (r *Run) UpdateControl(ctx context.Context, change func(now *schemas.Control) *schemas.Control) error {
	for {
		e, err := r.readEntry(ctx, r.names.control, controlKey)
		if err != nil {
			return err
		}
		var now *schemas.Control
		if e.value != nil {
			if now, err = r.readControl(e.value); err != nil {
				r.log.Error("unreadable control is written anew", "revision", e.revision, "err", err)
				now = nil
			}
		}
		next := change(now)
		if next == nil {
			return nil
		}
		if err := r.checkOwn(next.Run, next.Validate()); err != nil {
			return fmt.Errorf("update control: %w", err)
		}
		data, err := schemas.Marshal(next)
		if err != nil {
			return fmt.Errorf("update control: %w", err)
		}
		if ok, err := r.replaceEntry(ctx, r.names.control, controlKey, data, e.revision); ok || err != nil {
			return err
		}
	}
}

// Control is the control that was written last; [ErrNoControl] if there is none.
func (r *Run) Control(ctx context.Context) (*schemas.Control, error) {
	e, err := r.readEntry(ctx, r.names.control, controlKey)
	if err != nil {
		return nil, err
	}
	if e.value == nil {
		return nil, fmt.Errorf("run %s: %w", r.run, ErrNoControl)
	}
	return r.readControl(e.value)
}

// FollowControl calls fn with the control of now, if there is any, and with each newer control; of several that are written while fn
// runs it calls fn with the newest alone. It returns nil when ctx ends. Control that cannot be read is logged and skipped.
func (r *Run) FollowControl(ctx context.Context, fn func(*schemas.Control)) error {
	return r.followKey(ctx, r.names.control, controlKey, func(data []byte, revision uint64) error {
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
	return control, r.checkOwn(control.Run, control.Validate())
}

// checkOwn is fault, or an error where a message names another run.
func (r *Run) checkOwn(run string, fault error) error {
	if fault == nil && run != r.run {
		return fmt.Errorf("%w: a message of run %q in run %q", schemas.ErrInvalid, run, r.run)
	}
	return fault
}
