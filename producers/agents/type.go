// Package agents holds the agents that can be named in a configuration, each in a package below this package. An agent drives an episode:
// see [producers.Agent].
package agents

import (
	"context"
	"log/slog"
	"slices"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/part"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// Type is a kind of agent that a configuration can name, in the section agents.
type Type interface {
	// Name is the type's in a configuration: lower-case letters, digits, - and _.
	Name() string
	// Config is a pointer to a new struct that holds the defaults of the type's own keys, or nil where it has none, as for a task: see
	// tasks.Task. The name type is taken. A method Texts() []string lists the texts that the agent may write to the policy, so that a
	// vocabulary of words can hold it, and a method TagTokens() []string tokens of its own that the policy writes.
	Config() any
	// Open makes the agent.
	Open(ctx context.Context, o Opening) (producers.Agent, error)
}

// Cast is a Type whose agents play several roles in an episode: keys such as trainer.advantage.episode_agents take their names.
type Cast interface {
	Type
	// Roles are the results of [schemas.Role] for the names of the contexts that the agents open.
	Roles() []string
}

// Opening has the arguments that an agent is opened with.
type Opening struct {
	// Name is the agent's in the configuration.
	Name string
	// Config is the result of [Type.Config], with the values that the user set.
	Config any
	// Tokenizer is the run's.
	Tokenizer producers.Tokenizer
	// Chat is how the model of model.folder converses, with these variables of its template beside the folder's own. It fails
	// where there is no model folder, or none with a template that renders.
	Chat func(vars map[string]any) (*chat.Chat, error)
	// Tools are the tools that the agent's episodes may call; none where they may call none.
	Tools []producers.ToolSpec
	// Spaces are the sandboxes of the process, for agents that start programs; nil where the program has none.
	Spaces *workspace.Manager
	// Log is never nil.
	Log *slog.Logger
}

// NewType makes a Type of its name, the defaults of its own keys (nil where it has none) and a function that opens the agent with a copy of
// the keys, which are valid. [Type.Open] refuses keys of another type, and keys that their own Validate refuses.
func NewType[C any](name string, defaults func() C, open func(ctx context.Context, cfg C, o Opening) (producers.Agent, error)) Type {
	return part.NewType(name, defaults, func(o Opening) any { return o.Config }, open)
}

// WithRoles makes a [Cast] of a type.
func WithRoles(t Type, roles ...string) Cast { return cast{t, roles} }

type cast struct {
	Type
	roles []string
}

// Roles are the roles that the type's agents play.
func (c cast) Roles() []string { return slices.Clone(c.roles) }
