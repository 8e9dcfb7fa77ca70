package tools

import (
	"context"
	"strings"

	"github.com/weir-rl/weir/producers"
)

// FinishName is the type's name, and the tool's.
const FinishName = "finish"

// Finish is a tool by which an agent says its answer: the episode ends with the call's arguments, without the white space around them.
type Finish struct{}

// Spec describes the tool.
func (Finish) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: FinishName, Description: "Ends the work with the final answer."}
}

// Call ends the episode.
func (Finish) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	answer := strings.TrimSpace(call.Arguments)
	return producers.Observation{Done: true, Answer: &answer}, nil
}

// FinishType is the tool's [Type].
func FinishType() Type { return NewType(FinishName, nil, openFinishTool) }

// openFinishTool makes the tool.
func openFinishTool(_ context.Context, _ struct{}, _ Opening) (producers.Tool, error) {
	return Finish{}, nil
}

// Effects are none: a call may be made again.
func (Finish) Effects() producers.Effects { return producers.EffectsNone }
