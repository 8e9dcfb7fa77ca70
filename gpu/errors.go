package gpu

import "errors"

var (
	// ErrNoSlot is returned by Decoder.Open when every slot is taken.
	ErrNoSlot = errors.New("no free decoder slot")
	// ErrTooLong is returned when a sequence would exceed the model's or the decoder's length.
	ErrTooLong = errors.New("sequence too long")
	// ErrMismatch is returned when weights do not fit the model: a name or a shape differs.
	ErrMismatch = errors.New("weights do not fit the model")
)
