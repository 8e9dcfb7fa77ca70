package tools

import (
	"context"
	"log/slog"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/part"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tasks"
)

// Type is a kind of tool that a configuration can name, in the section tools.
type Type interface {
	// Name is the type's in a configuration: lower-case letters, digits, - and _.
	Name() string
	// Config is a pointer to a new struct that holds the defaults of the type's own keys, or nil where it has none, as for a task: see
	// [tasks.Task]. The names type, on, timeout, latency, max_concurrent, retry and breaker are taken: every tool has a time limit and a
	// [Guard] from outside. A method Texts() []string lists the texts that the tool may write beside the passages, so that a vocabulary of
	// words can hold it.
	Config() any
	// Open makes the tool.
	Open(ctx context.Context, o Opening) (producers.Tool, error)
}

// Opening has the arguments that a tool is opened with.
type Opening struct {
	// Name is the tool's in the configuration. An agent calls a tool by the name in its spec, which may be another.
	Name string
	// Config is the result of [Type.Config], with the values that the user set.
	Config any
	// Passages are the passages of the task that the tool is opened for; nil where the task has none.
	Passages []tasks.Passage
	// Worlds are the functions of that task, for tools that run an agent's code; nil where the task has none.
	Worlds []tasks.World
	// Spaces are the sandboxes of the process's episodes, for tools that run a model's code; nil where the program has none. A tool that
	// will need them says so when it is opened: see [workspace.Manager.Claim].
	Spaces *workspace.Manager
	// Log is never nil.
	Log *slog.Logger
}

// NewType makes a Type of its name, the defaults of its own keys (nil where it has none) and a function that opens the tool with a copy of
// the keys, which are valid. [Type.Open] refuses keys of another type, and keys that their own Validate refuses.
func NewType[C any](name string, defaults func() C, open func(ctx context.Context, cfg C, o Opening) (producers.Tool, error)) Type {
	return part.NewType(name, defaults, func(o Opening) any { return o.Config }, open)
}
