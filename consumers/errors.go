package consumers

import "errors"

var (
	// ErrBadRequest is returned for a request that no engine can serve.
	ErrBadRequest = errors.New("bad request")
	// ErrBadWeights is returned for a manifest or a shard that cannot become weights: a hash, a decoding, a
	// configuration or a shape is wrong. The old weights stay.
	ErrBadWeights = errors.New("bad weights")
	// ErrStopped is returned by Swap when the engine has stopped.
	ErrStopped = errors.New("the engine has stopped")
)
