package selfplay

import (
	"context"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "selfplay"

// Type is the agent's [agents.Type].
func Type() agents.Cast {
	return agents.WithRoles(agents.NewType(Name, DefaultConfig, openAgent), Proposer, Verifier, schemas.Role(Solver(1)))
}

// openAgent makes the agent.
func openAgent(_ context.Context, cfg Config, o agents.Opening) (producers.Agent, error) {
	return New(cfg, o.Tokenizer)
}

// Texts are the texts that the agent may write to the policy.
func (c *Config) Texts() []string { return []string{c.Feedback} }
