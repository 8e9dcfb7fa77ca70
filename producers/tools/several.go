package tools

import (
	"context"
	"errors"

	"github.com/weir-rl/weir/producers"
)

// Several are the tools of a section, such as those of a server: agents have each of them. It is a tool only so that [Type.Open] can return
// it.
type Several []producers.Tool

// Spec is the first tool's.
func (s Several) Spec() producers.ToolSpec { return s[0].Spec() }

// Call fails: the tools are called in turn.
func (s Several) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{}, errors.New("several tools cannot be called as one")
}

// Each are the tools that a [Type.Open] made.
func Each(tool producers.Tool) []producers.Tool {
	if several, ok := tool.(Several); ok {
		return several
	}
	return []producers.Tool{tool}
}

// Effects are those of the tools.
func (s Several) Effects() producers.Effects { return producers.EffectsOf(s[0]) }
