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
type FinishType struct{}

// Name is the type's in a configuration.
func (FinishType) Name() string { return FinishName }

// Config is nil: there is nothing to set.
func (FinishType) Config() any { return nil }

// Open makes the tool.
func (FinishType) Open(context.Context, Opening) (producers.Tool, error) { return Finish{}, nil }
