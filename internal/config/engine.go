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

func (c *Config) backend(own native.Config) (gpu.Backend, error) {
	engine, ok := c.doors.Engine(c.Model.Engine)
	if !ok {
		return nil, &ValueError{Key: "model.engine", Problem: fmt.Sprintf("%q: want %s", c.Model.Engine, oneOf(c.doors.EngineNames()))}
	}
	return engine.Open(parts.EngineOpening{
		Seed: c.Run.Seed, Threads: c.Run.Threads, EmbeddingStd: c.Model.EmbeddingStd, OutputFromValue: c.Model.OutputFromValue,
		Native: own,
		Torch:  c.Torch,
	})
}
