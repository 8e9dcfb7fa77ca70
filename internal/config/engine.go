package config

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/parts"
)

// Engine is the section of a program's own engine. The engines native and torch have sections of their own.
type Engine struct {
	// Own holds the keys of the engine.
	Own any `koanf:",squash"`
}

// Backend is the backend that model.engine names, for the policy.
func (c *Config) Backend() (gpu.Backend, error) {
	return c.openBackend("model.engine", c.Model.Engine, c.Model.LoRA)
}

// WholeBackend is Backend for engines beside the policy's: they have no adapters.
func (c *Config) WholeBackend() (gpu.Backend, error) {
	return c.openBackend("model.engine", c.Model.Engine, native.LoRA{})
}

// SamplerBackend is the backend that samples in this process: inference.engine, or model.engine where inference.engine is "".
func (c *Config) SamplerBackend() (gpu.Backend, error) {
	if _, ok := c.registry.Engine(c.Inference.Engine); !ok {
		return c.Backend()
	}
	return c.openBackend("inference.engine", c.Inference.Engine, native.LoRA{})
}

func (c *Config) openBackend(key, name string, lora native.LoRA) (gpu.Backend, error) {
	engine, ok := c.registry.Engine(name)
	if !ok {
		return nil, &ValueError{Key: key, Problem: fmt.Sprintf("%q: want %s", name, joinWithOr(c.registry.EngineNames()))}
	}
	var own any
	if section := c.Engines[name]; section != nil {
		own = section.Own
	}
	return engine.Open(parts.EngineOpening{
		Own:  own,
		Seed: c.Run.Seed, Threads: c.Run.Threads, EmbeddingStd: c.Model.EmbeddingStd, OutputFromValue: c.Model.OutputFromValue,
		Native: c.Native, Torch: c.Torch, LoRA: lora,
	})
}
