package native

// Config is what this engine alone has.
type Config struct {
	// Recompute has the trainer keep the input of each block alone, and compute the block again for its gradient. The
	// results are the same, bit for bit; a step takes about a third longer, and activations a fraction of the memory.
	// Defaults to false.
	Recompute bool `koanf:"recompute"`
}

// DefaultConfig keeps every activation.
func DefaultConfig() Config { return Config{} }
