package config

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/parts"
)

// Engine is the section of an engine that the program brings itself. The engines native and torch have sections of their own.
type Engine struct {
	// Own holds the keys of the engine.
	Own any `koanf:",squash"`
}

// Backend is what model.engine names, for the policy.
func (c *Config) Backend() (gpu.Backend, error) {
	return c.open("model.engine", c.Model.Engine, c.Model.LoRA)
}

// WholeBackend is Backend for engines beside the policy's: they have no adapters.
func (c *Config) WholeBackend() (gpu.Backend, error) {
	return c.open("model.engine", c.Model.Engine, native.LoRA{})
}

// SamplerBackend is what samples in this process: what inference.engine names, or model.engine where that names none.
func (c *Config) SamplerBackend() (gpu.Backend, error) {
	if _, ok := c.doors.Engine(c.Inference.Engine); !ok {
		return c.Backend()
	}
	return c.open("inference.engine", c.Inference.Engine, native.LoRA{})
}

func (c *Config) open(key, name string, lora native.LoRA) (gpu.Backend, error) {
	engine, ok := c.doors.Engine(name)
	if !ok {
		return nil, &ValueError{Key: key, Problem: fmt.Sprintf("%q: want %s", name, oneOf(c.doors.EngineNames()))}
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
