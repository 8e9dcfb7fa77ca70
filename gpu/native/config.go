package native

import (
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/check"
)

// Config holds the settings of the native engine alone.
type Config struct {
	// Recompute has the trainer keep the input of each block alone, and compute the block again for its gradient. The
	// results are the same, bit for bit; a step takes about a third longer, and activations a fraction of the memory.
	// Defaults to false.
	Recompute bool `koanf:"recompute"`
	// DType is the type in which the trainer's forward pass reads the matrices: float32 or bfloat16. With bfloat16 they are
	// rounded from the masters, which stay float32, as do the gradient and the moments; the trained policy is then the policy
	// that a sampler in bfloat16 samples from. The copy takes two bytes a weight beside the masters: less than a model of up to
	// 67 million weights takes for its float32 copy, and more than a larger model, which has none. Defaults to float32.
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
