package native

import "github.com/weir-rl/weir/internal/check"

// Config is what this engine alone has.
type Config struct {
	// Recompute has the trainer keep the input of each block alone, and compute the block again for its gradient. The
	// results are the same, bit for bit; a step takes about a third longer, and activations a fraction of the memory.
	// Defaults to false.
	Recompute bool `koanf:"recompute"`
	// LoRA trains adapters instead of the policy's weights. Versions are published, and checkpoints written, with the adapters
	// merged in; a checkpoint has them apart too, in the folder adapter, in PEFT's two files. A run goes on from it where it
	// begins with the same model. A critic that is a network of its own is trained whole.
	LoRA LoRA `koanf:"lora"`
}

// DefaultConfig keeps every activation and trains the weights.
func DefaultConfig() Config { return Config{LoRA: DefaultLoRA()} }

// Validate reports every fault.
func (c Config) Validate() error { return check.Section("lora", c.LoRA.Validate()) }
