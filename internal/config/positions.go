package config

import (
	"fmt"

	"github.com/weir-rl/weir/gpu/hf"
)

// Positions is how long a sequence of the policy can be, and what says so: the model's own bound where model.folder is set, else
// model.max_positions. 0 is no bound that is known: of a folder that cannot be read, which is refused where it is opened.
func (c *Config) Positions() (most int, of string) {
	if c.Model.Folder == "" {
		return c.Model.MaxPositions, "model.max_positions"
	}
	of = "max_position_embeddings in the config.json of " + c.Model.Folder
	model, err := hf.ReadConfig(c.Model.Folder)
	if err != nil {
		return 0, of
	}
	return model.MaxPositions, of
}

// Longest is how long a sequence may grow in the run: the largest of the tasks' limits.
func (c *Config) Longest() int {
	most := 0
	for _, name := range c.Active() {
		most = max(most, c.Limits(name).MaxTokens)
	}
	return most
}

// short checks that a length is one that the policy can have, and that its sampler takes.
func (c *Config) short(f *faults, key string, length int) {
	most, of := c.Positions()
	f.check(key, most == 0 || length <= most, fmt.Sprintf("%d: must not exceed %s, %d", length, of, most))
	sampled := c.Inference.MaxTokens
	f.check(key, sampled <= 0 || length <= sampled,
		fmt.Sprintf("%d: must not exceed inference.max_tokens, %d, where every longer episode would be cut off: lower it, or raise inference.max_tokens", length, sampled))
}
