package schemas

import "errors"

// What can be wrong with received bytes. Errors of this package wrap exactly one of them and name the field.
var (
	// ErrVersion refuses a message of another wire version.
	ErrVersion = errors.New("wire version not readable")
	// ErrKind refuses a message of another kind than asked for, or of no kind known here.
	ErrKind = errors.New("wrong kind of message")
	// ErrMalformed refuses what is not a message, is cut short, or has a field that breaks the format.
	ErrMalformed = errors.New("malformed message")
	// ErrInvalid refuses a message that reads well but breaks an invariant. Every Validate wraps it.
	ErrInvalid = errors.New("invalid message")
)
