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
type Type struct{}

// Name is the type's in a configuration.
func (Type) Name() string { return Name }

// Config holds the defaults.
func (Type) Config() any {
	c := DefaultConfig()
	return &c
}

// Open makes the agent.
func (Type) Open(_ context.Context, o agents.Opening) (producers.Agent, error) {
	return New(*o.Config.(*Config), o.Tokenizer)
}

// Roles are the parts of a game.
func (Type) Roles() []string { return []string{Proposer, Verifier, schemas.Role(Solver(1))} }

// Texts are what the agent may say to the policy.
func (c *Config) Texts() []string { return []string{c.Feedback} }
