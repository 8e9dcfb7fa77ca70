package starlark

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

// Type is the kind of tool that a configuration names by type: starlark.
type Type struct{}

// Name is "starlark".
func (Type) Name() string { return Name }

// Config is a new Config with its defaults.
func (Type) Config() any {
	cfg := DefaultConfig()
	return &cfg
}

// Open makes the tool over the task's worlds.
func (Type) Open(_ context.Context, o tools.Opening) (producers.Tool, error) {
	cfg, ok := o.Config.(*Config)
	if !ok {
		return nil, fmt.Errorf("tool %s: the configuration is a %T: want *starlark.Config", o.Name, o.Config)
	}
	t, err := New(*cfg, o.Worlds)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", o.Name, err)
	}
	return t, nil
}
