package config

import (
	"fmt"

	"github.com/weir-rl/weir/gpu/hf"
)

// Positions is the length of the policy's longest possible sequence, and the bound's name: the model's own bound where model.folder is set,
// else model.max_positions. 0 is no known bound: the folder cannot be read, and is refused where it is opened.
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

// checkLength checks that a length is possible for the policy and its sampler.
func (c *Config) checkLength(f *faults, key string, length int) {
	most, of := c.Positions()
	f.addUnless(key, most == 0 || length <= most, fmt.Sprintf("%d: must not exceed %s, %d", length, of, most))
	sampled := c.Inference.MaxTokens
	f.addUnless(key, sampled <= 0 || length <= sampled,
		fmt.Sprintf("%d: must not exceed inference.max_tokens, %d, where every longer episode would be cut off: lower it, or raise inference.max_tokens", length, sampled))
}
