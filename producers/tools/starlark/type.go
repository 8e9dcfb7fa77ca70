package starlark

import (
	"context"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

// Type is the kind of tool that a configuration names by type: starlark.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool over the task's worlds.
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	return New(cfg, o.Worlds)
}
