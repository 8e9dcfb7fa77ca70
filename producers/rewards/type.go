package rewards

import (
	"context"
	"log/slog"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/part"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// Type is a kind of reward that a configuration can name, in the section reward of a task.
type Type interface {
	// Name is the type's in a configuration: lower-case letters, digits, - and _.
	Name() string
	// Config is a pointer to a new struct that holds the defaults of the type's own keys, or nil where it has none, as for
	// a task: see tasks.Task. The name type is taken.
	Config() any
	// Open makes the reward.
	Open(ctx context.Context, o Opening) (producers.Reward, error)
}

// Opening has the arguments that a reward is opened with.
type Opening struct {
	// Task is the name, in the configuration, of the task that the reward is for.
	Task string
	// Config is the result of [Type.Config], with the values that the user set.
	Config any
	// Sources are the sources of the task's questions, sorted.
	Sources []string
	// Tools are the names of the task's tools, sorted; empty where it has none, or its agents bring their own.
	Tools []string
	// Spaces are the sandboxes of the process, for rewards that run a model's code; nil where the program has none. A reward that will need
	// them says so when it is opened: see [workspace.Manager.Claim].
	Spaces *workspace.Manager
	// Log is never nil.
	Log *slog.Logger
}

// NewType makes a Type of its name, the defaults of its own keys (nil where it has none) and a function that opens the reward with a copy
// of the keys, which are valid. [Type.Open] refuses keys of another type, and keys that their own Validate refuses.
func NewType[C any](name string, defaults func() C, open func(ctx context.Context, cfg C, o Opening) (producers.Reward, error)) Type {
	return part.NewType(name, defaults, func(o Opening) any { return o.Config }, open)
}
