package team

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
)

// Name is the type's in a configuration.
const Name = "team"

// Type is the agent's [agents.Type].
func Type() agents.Cast {
	return agents.WithRoles(agents.NewType(Name, DefaultConfig, openAgent), PlannerName, WorkerRole)
}

// openAgent makes the agent.
func openAgent(ctx context.Context, cfg Config, o agents.Opening) (producers.Agent, error) {
	return New(ctx, cfg, o)
}

// New makes the agent over the tokenizer and the chat template of an opening.
func New(ctx context.Context, cfg Config, o agents.Opening) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("team agent: %w", err)
	}
	if err := cfg.checkTools(o.Tools); err != nil {
		return nil, fmt.Errorf("team agent: %w", err)
	}
	a := &Agent{cfg: cfg}
	var err error
	if a.planner, a.worker, err = openSpeakers(ctx, cfg, o); err != nil {
		return nil, fmt.Errorf("team agent: %w", err)
	}
	return a, nil
}

// openSpeakers returns the two roles: in tags, where the vocabulary has them and nothing else is asked for, else in chat.
func openSpeakers(ctx context.Context, cfg Config, o agents.Opening) (planner, worker speaker, err error) {
	if cfg.Notation != NotationChat {
		p, w, err := newTags(cfg, o.Tokenizer, o.Tools)
		if err == nil || cfg.Notation == NotationTags || o.Chat == nil {
			return p, w, err
		}
		if _, without := o.Chat(nil); without != nil {
			return nil, nil, errors.Join(err, without)
		}
	}
	p, w, err := newSpoken(ctx, cfg, o)
	return p, w, err
}

// toolNames lists the names of tools.
func toolNames(specs []producers.ToolSpec) string {
	var out []string
	for _, s := range specs {
		out = append(out, s.Name)
	}
	if len(out) == 0 {
		return "no tool"
	}
	return strings.Join(out, ", ")
}
