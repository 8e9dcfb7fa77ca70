package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
)

// Name is the type's in a configuration.
const Name = "chat"

// The values of the template's variable enable_thinking.
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
	// MaxInvalid is how many turns of an episode may hold a tool call that cannot be read, > 0: the policy is told of the fault, and the
	// last of them ends the episode. Defaults to 3.
	MaxInvalid int `koanf:"max_invalid"`
	// CallsPerTurn bounds the tool calls of a turn, > 0; further calls are not made, and the policy is told. Defaults to 4.
	CallsPerTurn int `koanf:"calls_per_turn"`
	// Format is how the policy writes calls: auto, which is as its chat template shows; hermes (Qwen2.5 and Qwen3 too), llama3, qwen3_coder
	// or harmony (gpt-oss) for a template that shows tools and does not tell; or tag (Search-R1), code (ReTool) or fence, which any
	// template has room for. Defaults to auto.
	Format string `koanf:"format"`
	// Tags are tags of tools in the format tag, as tool=tag: "search=find" has the policy write <find> and </find>. A tool that is not
	// named has its own name for a tag. Defaults to none.
	Tags []string `koanf:"tags"`
	// ResultTag is the tag around a tool's words, in the formats tag, code and fence. "" is information in tag, as Search-R1 has it, and
	// interpreter in the others, as ReTool has it. Defaults to "".
	ResultTag string `koanf:"result_tag"`
	// CodeTool is the tool that runs code in the formats code and fence. "" is the only tool of the task. Defaults to "".
	CodeTool string `koanf:"code_tool"`
	// Instructions has the system message say which tools there are and how they are called, in the formats tag, code and fence: others
	// have it from the template. Defaults to true.
	Instructions bool `koanf:"instructions"`
}

// formatAuto is the template's own.
const formatAuto = "auto"

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{Thinking: ThinkingDefault, MaxInvalid: 3, CallsPerTurn: 4, Format: formatAuto, Instructions: true}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.OneOf("thinking", c.Thinking, ThinkingDefault, ThinkingOn, ThinkingOff),
		check.Positive("max_invalid", c.MaxInvalid),
		check.Positive("calls_per_turn", c.CallsPerTurn),
		check.OneOf("format", c.Format, append([]string{formatAuto}, chat.Formats()...)...),
		c.checkTags(),
	)
}

func (c Config) checkTags() error {
	var faults []error
	for i, text := range c.Tags {
		if tool, tag, ok := strings.Cut(text, "="); !ok || tool == "" || tag == "" {
			faults = append(faults, fmt.Errorf("tags[%d]: %q: want tool=tag, such as search=find", i, text))
		}
	}
	return errors.Join(faults...)
}

// callStyle returns the configured tool-call format.
func (c Config) callStyle() chat.Style {
	s := chat.Style{Result: c.ResultTag, Tool: c.CodeTool, Untold: !c.Instructions, Tags: map[string]string{}}
	if c.Format != formatAuto {
		s.Format = chat.Format(c.Format)
	}
	for _, text := range c.Tags {
		tool, tag, _ := strings.Cut(text, "=")
		s.Tags[tool] = tag
	}
	return s
}

// checkTools refuses a task whose tools are not the tools that the format calls.
func (c Config) checkTools(tools []chat.Tool) error {
	has := func(name string) bool {
		return slices.ContainsFunc(tools, func(t chat.Tool) bool { return t.Name == name })
	}
	var faults []error
	for i, text := range c.Tags {
		if tool, _, _ := strings.Cut(text, "="); !has(tool) && len(tools) > 0 {
			faults = append(faults, fmt.Errorf("tags[%d]: %q: the task has no tool %s", i, text, tool))
		}
	}
	if format := chat.Format(c.Format); len(tools) > 0 && (format == chat.FormatCode || format == chat.FormatFence) {
		switch {
		case c.CodeTool == "" && len(tools) > 1:
			faults = append(faults, fmt.Errorf("code_tool: the task has %d tools, and the format %s calls one: name it", len(tools), format))
		case c.CodeTool != "" && !has(c.CodeTool):
			faults = append(faults, fmt.Errorf("code_tool: the task has no tool %s", c.CodeTool))
		}
	}
	return errors.Join(faults...)
}

// templateVars returns the variables of the template.
func (c Config) templateVars() map[string]any {
	if c.Thinking == ThinkingDefault {
		return nil
	}
	return map[string]any{"enable_thinking": c.Thinking == ThinkingOn}
}

// Type is the agent's [agents.Type].
func Type() agents.Type { return agents.NewType(Name, DefaultConfig, openAgent) }

// openAgent makes the agent over the template of the model folder.
func openAgent(_ context.Context, cfg Config, o agents.Opening) (producers.Agent, error) {
	if o.Chat == nil {
		return nil, errors.New("chat agent: it is opened without a model folder")
	}
	c, err := o.Chat(cfg.templateVars())
	if err != nil {
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	if c, err = c.Styled(cfg.callStyle()); err != nil {
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	a, err := New(cfg, c, o.Tools)
	if err != nil {
		return nil, err
	}
	if after := c.Rewrites(); len(after) > 0 && o.Log != nil {
		o.Log.Warn("the chat template writes earlier turns anew: an episode goes on in a new context after such a message", "after", after)
	}
	return a, nil
}
