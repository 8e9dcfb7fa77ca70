package config

import (
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/parts"
)

// Backend is what model.engine names.
func (c *Config) Backend() (gpu.Backend, error) {
	engine, ok := c.doors.Engine(c.Model.Engine)
	if !ok {
		return nil, &ValueError{Key: "model.engine", Problem: fmt.Sprintf("%q: want %s", c.Model.Engine, oneOf(c.doors.EngineNames()))}
	}
	return engine.Open(parts.EngineOpening{
		Seed: c.Run.Seed, Threads: c.Run.Threads, EmbeddingStd: c.Model.EmbeddingStd, OutputFromValue: c.Model.OutputFromValue,
		Native: c.Native,
		Torch:  c.Torch,
	})
}
