// Package agents holds the agents that can be named in a configuration, each in a package below this one. An agent drives
// an episode: see [producers.Agent].
package agents

import (
	"context"
	"log/slog"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
)

// Type is a kind of agent that a configuration can name, in the section agents.
type Type interface {
	// Name is the type's in a configuration: lower-case letters, digits, - and _.
	Name() string
	// Config is a pointer to a new struct that holds the defaults of the type's own keys, or nil where it has none, as for
	// a task: see tasks.Task. The name type is taken. A method Texts() []string lists what the agent may say to the policy,
	// so that a vocabulary of words can hold it.
	Config() any
	// Open makes the agent.
	Open(ctx context.Context, o Opening) (producers.Agent, error)
}

// Opening is what an agent is opened with.
type Opening struct {
	// Name is the agent's in the configuration.
	Name string
	// Config is what [Type.Config] returned, with the values that the user set.
	Config any
	// Tokenizer is the run's.
	Tokenizer producers.Tokenizer
	// Chat is how the model of model.folder converses, with these variables of its template beside the folder's own. It fails
	// where there is no model folder, or none with a template that renders.
	Chat func(vars map[string]any) (*chat.Chat, error)
	// Tools are those that the agent's episodes may call; none where they may call none.
	Tools []producers.ToolSpec
	// Log is never nil.
	Log *slog.Logger
}
