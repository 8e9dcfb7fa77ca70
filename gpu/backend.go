package gpu

// Backend makes the engines and the decoders of an implementation, such as gpu/native. The configuration key model.engine names
// it.
type Backend interface {
	// New makes an engine that trains a model of the given shape. Its weights are starting weights, drawn as the backend's own
	// options say.
	New(cfg Config) (Engine, error)
	// NewDecoder makes a decoder that samples from w, weights of a model of the given shape. No engine is made for it.
	// ErrMismatch is returned when w does not fit cfg, ErrTooLong when o.MaxTokens exceeds cfg.MaxPositions. The decoder may keep
	// tensors of w: the caller must not write to them.
	NewDecoder(cfg Config, w *Weights, o DecoderOptions) (Decoder, error)
}
