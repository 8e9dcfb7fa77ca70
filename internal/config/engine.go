package config

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/parts"
)

// Backend is what model.engine names, for the policy.
func (c *Config) Backend() (gpu.Backend, error) { return c.backend(c.Native) }

// WholeBackend is Backend for engines beside the policy's: they have no adapters.
func (c *Config) WholeBackend() (gpu.Backend, error) {
	whole := c.Native
	whole.LoRA.Rank = 0
	return c.backend(whole)
}

// SamplerBackend is what samples in this process: what inference.engine names, or model.engine where that names none.
func (c *Config) SamplerBackend() (gpu.Backend, error) {
	if _, ok := c.doors.Engine(c.Inference.Engine); !ok {
		return c.Backend()
	}
	return c.open("inference.engine", c.Inference.Engine, c.Native)
}

func (c *Config) backend(own native.Config) (gpu.Backend, error) {
	return c.open("model.engine", c.Model.Engine, own)
}

func (c *Config) open(key, name string, own native.Config) (gpu.Backend, error) {
	engine, ok := c.doors.Engine(name)
	if !ok {
		return nil, &ValueError{Key: key, Problem: fmt.Sprintf("%q: want %s", name, oneOf(c.doors.EngineNames()))}
	}
	return engine.Open(parts.EngineOpening{
		Seed: c.Run.Seed, Threads: c.Run.Threads, EmbeddingStd: c.Model.EmbeddingStd, OutputFromValue: c.Model.OutputFromValue,
		Native: own,
		Torch:  c.Torch,
	})
}
