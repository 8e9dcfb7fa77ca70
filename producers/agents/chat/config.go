package chat

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
)

// Name is the type's in a configuration.
const Name = "chat"

// What the template's variable enable_thinking is.
const (
	ThinkingDefault = "default" // it is not set
	ThinkingOn      = "on"
	ThinkingOff     = "off"
)

// Config says how the agent converses.
type Config struct {
	// System is the system message; "" is none. Defaults to "".
	System string `koanf:"system"`
	// Thinking is whether the policy thinks before it speaks, for templates that ask (enable_thinking): default, on or off.
	// Defaults to default, which does not say.
	Thinking string `koanf:"thinking"`
	// AnswerTag is the tag that the final answer stands in: "answer" is for <answer> and </answer>, the last of them. "" takes the
	// whole turn, without thoughts. Defaults to "".
	AnswerTag string `koanf:"answer_tag"`
	// MaxInvalid is how many turns of an episode may hold a tool call that cannot be read, > 0: the policy is told what is wrong,
	// and the last of them ends the episode. Defaults to 3.
	MaxInvalid int `koanf:"max_invalid"`
	// CallsPerTurn bounds the tool calls of one turn, > 0; what goes beyond is not called, and the policy is told. Defaults to 4.
	CallsPerTurn int `koanf:"calls_per_turn"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config { return Config{Thinking: ThinkingDefault, MaxInvalid: 3, CallsPerTurn: 4} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.OneOf("thinking", c.Thinking, ThinkingDefault, ThinkingOn, ThinkingOff),
		check.Positive("max_invalid", c.MaxInvalid),
		check.Positive("calls_per_turn", c.CallsPerTurn),
	)
}

// vars are variables of the template.
func (c Config) vars() map[string]any {
	if c.Thinking == ThinkingDefault {
		return nil
	}
	return map[string]any{"enable_thinking": c.Thinking == ThinkingOn}
}

// Type is the agent's [agents.Type].
type Type struct{}

// Name is the type's in a configuration.
func (Type) Name() string { return Name }

// Config holds the defaults.
func (Type) Config() any {
	c := DefaultConfig()
	return &c
}

// Open makes the agent over the template of the model folder.
func (Type) Open(_ context.Context, o agents.Opening) (producers.Agent, error) {
	cfg, ok := o.Config.(*Config)
	if !ok {
		return nil, fmt.Errorf("the configuration is a %T: want *chat.Config", o.Config)
	}
	if o.Chat == nil {
		return nil, errors.New("chat agent: it is opened without a model folder")
	}
	c, err := o.Chat(cfg.vars())
	if err != nil {
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	a, err := New(*cfg, c, o.Tools)
	if err != nil {
		return nil, err
	}
	if after := c.Rewrites(); len(after) > 0 && o.Log != nil {
		o.Log.Warn("the chat template writes earlier turns anew: an episode goes on in a new context after such a message", "after", after)
	}
	return a, nil
}
