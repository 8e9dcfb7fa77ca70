package calculator

import (
	"context"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

// Name is the type's name and the tool's.
const Name = "calculator"

// Tool works expressions out. It keeps nothing.
type Tool struct{}

// Spec describes the tool.
func (Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{
		Name:        Name,
		Description: "Works out an expression exactly, such as (3 + 1/4) * 2^10, with + - * / // % ^, sqrt, round, min, max, gcd, log, sin and others.",
	}
}

// Call works its arguments out. The agent is told of faults in them.
func (Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	text, err := evaluateUntil(ctx, call.Arguments)
	return producers.Observation{Text: text}, err
}

// Type is the kind of tool that a configuration names by type: calculator.
func Type() tools.Type { return tools.NewType(Name, nil, openTool) }

// openTool makes the tool.
func openTool(_ context.Context, _ struct{}, _ tools.Opening) (producers.Tool, error) {
	return Tool{}, nil
}

// Effects are none: a call may be made again.
func (Tool) Effects() producers.Effects { return producers.EffectsNone }
