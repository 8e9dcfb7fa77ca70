package tasks

import (
	"context"

	"github.com/weir-rl/weir/producers"
)

// World is functions of a task that the code of an agent can call, such as turn() for the next page of a book. Many episodes use
// it at once.
type World interface {
	// Open makes the functions of an episode. They may keep state; functions that also have Close() error are closed with the session.
	Open(s producers.Session) (Functions, error)
}

// Functions are the functions of an episode. A single goroutine calls them.
type Functions interface {
	// Names are the functions' names in the code: identifiers, distinct over all worlds of a task.
	Names() []string
	// Call calls a function. Arguments and result are JSON values: nil, bool, float64, int64, string, []any, map[string]any. An error is
	// the agent's, such as a wrong number of arguments, and stops the code with its text; an error that wraps [producers.ErrUnavailable] is
	// the machinery's.
	Call(ctx context.Context, name string, args []any) (any, error)
}
