package notebook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
)

// Type is the agent's [agents.Type].
func Type() agents.Type { return agents.NewType(Name, DefaultConfig, openAgent) }

// openAgent makes the agent.
func openAgent(_ context.Context, cfg Config, o agents.Opening) (producers.Agent, error) {
	return New(cfg, o)
}

// New makes the agent over the tokenizer and the chat template of an opening.
func New(cfg Config, o agents.Opening) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("notebook agent: %w", err)
	}
	if !slices.ContainsFunc(o.Tools, func(s producers.ToolSpec) bool { return s.Name == cfg.Tool }) {
		return nil, fmt.Errorf("notebook agent: tool: %q is none of its task's: they are %s", cfg.Tool, toolNames(o.Tools))
	}
	written, err := notationOf(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("notebook agent: %w", err)
	}
	return &Agent{cfg: cfg, notation: written}, nil
}

// notationOf is how the agent's notebooks are written: in tags, where the vocabulary has them and nothing else is asked for, else in a
// chat.
func notationOf(cfg Config, o agents.Opening) (notation, error) {
	var tagged error
	if cfg.Notation != NotationChat {
		t, err := newTags(cfg, o.Tokenizer)
		if err == nil || cfg.Notation == NotationTags {
			return t, err
		}
		tagged = err
	}
	if o.Chat == nil {
		return nil, errors.Join(tagged, errors.New("it is opened without a model folder"))
	}
	c, err := o.Chat(nil)
	if err != nil {
		return nil, errors.Join(tagged, err)
	}
	return newSpoken(cfg, c)
}

// toolNames lists the names of tools.
func toolNames(specs []producers.ToolSpec) string {
	var out []string
	for _, s := range specs {
		out = append(out, s.Name)
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
