package native

import (
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/check"
)

// Config is what this engine alone has.
type Config struct {
	// Recompute has the trainer keep the input of each block alone, and compute the block again for its gradient. The
	// results are the same, bit for bit; a step takes about a third longer, and activations a fraction of the memory.
	// Defaults to false.
	Recompute bool `koanf:"recompute"`
	// DType is what the trainer's forward pass reads the matrices as: float32, or bfloat16, rounded from the masters, which stay
	// float32 with the gradient and the moments. The policy that is trained then is the one that a sampler in bfloat16 samples
	// from. Two bytes a weight beside the masters: less than the layout for products of a model up to 67 million weights takes in
	// float32, more than a larger model's, which has none. Defaults to float32.
	DType string `koanf:"dtype"`
	// Dot rounds the activations to bfloat16 too where matrices are kept in it, in training and in decoding, on a processor that
	// multiplies pairs of them (AVX512_BF16): about twice as fast, and the numbers then depend on the processor. Elsewhere it does
	// nothing. Defaults to false.
	Dot bool `koanf:"dot"`
}

// DefaultConfig keeps every activation, and computes in float32.
func DefaultConfig() Config { return Config{DType: string(gpu.Float32)} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.OneOf("dtype", c.DType, string(gpu.Float32), string(gpu.BFloat16))
}
