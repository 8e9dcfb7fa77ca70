package consumers

import (
	"errors"

	"github.com/weir-rl/weir/consumers/openai"
)

var (
	// ErrBadRequest is returned when no consumer can serve a request.
	ErrBadRequest = openai.ErrBadRequest
	// ErrBadWeights is returned when a manifest, a shard or a snapshot cannot become weights: a hash, a decoding, a
	// configuration or a shape is wrong. The old weights stay.
	ErrBadWeights = errors.New("bad weights")
	// ErrStopped is returned by Batcher.Swap when the Batcher has stopped.
	ErrStopped = errors.New("the engine has stopped")
	// ErrTaken is returned by OpenFolder when another process has the folder.
	ErrTaken = errors.New("another process has the folder")
)
