package schemas

import "errors"

// The errors of this package. Every other error of it wraps exactly one of these errors and names the field.
var (
	// ErrVersion is returned when a message has another wire version than this build reads.
	ErrVersion = errors.New("wire version not readable")
	// ErrKind is returned when a message has another kind than asked for, or a kind that this build does not know.
	ErrKind = errors.New("wrong kind of message")
	// ErrMalformed is returned when bytes are no message, are cut short, or have a field that breaks the format.
	ErrMalformed = errors.New("malformed message")
	// ErrInvalid is returned when a message can be decoded and breaks an invariant. Every Validate wraps it.
	ErrInvalid = errors.New("invalid message")
)
