package gpu

import (
	"errors"
	"fmt"
)

var (
	// ErrNoSlot is returned by Decoder.Open when every slot is taken.
	ErrNoSlot = errors.New("no free decoder slot")
	// ErrTooLong is returned when a sequence would exceed the model's or the decoder's length.
	ErrTooLong = errors.New("sequence too long")
	// ErrMismatch is returned when weights do not fit the model: a name or a shape differs.
	ErrMismatch = errors.New("weights do not fit the model")
	// ErrNotFinite is returned in Sampled.Err when the model gave a logit that is infinite or not a number.
	ErrNotFinite = errors.New("logits are not finite")
	// ErrLost is returned, wrapped, by every call of an Engine whose processes have ended: weights, moments and gradient are
	// gone. Discard then succeeds, and Import begins anew; an engine that was never given weights has its starting weights
	// again.
	ErrLost = errors.New("the engine was lost")
)

// PartError is returned, wrapped, by Evaluate and Accumulate for a fault in one of the parts, so that the caller can name the
// rollouts at fault.
type PartError struct {
	// Part is its index.
	Part int
	Err  error
}

func (e *PartError) Error() string { return fmt.Sprintf("part %d: %s", e.Part, e.Err) }

// Unwrap returns the fault.
func (e *PartError) Unwrap() error { return e.Err }
