package search

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
)

// Name is the type's in a configuration.
const Name = "search"

// Type is the agent's [agents.Type].
func Type() agents.Type { return agents.NewType(Name, DefaultConfig, openAgent) }

// openAgent makes the agent.
func openAgent(_ context.Context, cfg Config, o agents.Opening) (producers.Agent, error) {
	for i, name := range cfg.Further {
		if !slices.ContainsFunc(o.Tools, func(s producers.ToolSpec) bool { return s.Name == name }) && len(o.Tools) > 0 {
			return nil, fmt.Errorf("search agent: further[%d]: %q: the task has no such tool", i, name)
		}
	}
	return New(cfg, o.Tokenizer)
}

// Texts are the texts that the agent may write to the policy.
func (c *Config) Texts() []string { return []string{c.Feedback} }
