package team

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/chat"
	"github.com/weir-rl/weir/producers/agents/search"
)

// How contexts are written.
const (
	NotationAuto = "auto"
	NotationTags = "tags"
	NotationChat = "chat"
)

// mostWorkers bounds the workers of an episode: each is a segment at least.
const mostWorkers = 63

// Config describes the members of the team, and how its contexts are written.
type Config struct {
	// Notation is tags, where the policy writes <delegate> task </delegate> and a worker <search> words </search>, each tag a token of the
	// vocabulary; chat, in messages of the model's template, with the calls that it shows; or auto, which is tags where the vocabulary has
	// them. Defaults to auto.
	Notation string `koanf:"notation"`
	// Planner is the agent that reads the question and answers it.
	Planner Planner `koanf:"planner"`
	// Worker is the agent that answers the planner's tasks.
	Worker Worker `koanf:"worker"`
	// Delegate is the name of the call that gives a worker a task, and in tags that of its tag. Defaults to delegate.
	Delegate string `koanf:"delegate"`
	// MaxWorkers bounds the delegations of an episode, 1 to 63; the planner is told of calls beyond it. Defaults to 4.
	MaxWorkers int `koanf:"max_workers"`
	// Cut bounds how much of a worker's answer the planner is shown, in tokens.
	Cut producers.Cut `koanf:"cut"`
	// Tags is how contexts are written in tags. The tool and the tag search are the worker's.
	Tags search.Config `koanf:"tags"`
	// Chat is how the planner and its workers converse in chat. Its system message is theirs: see planner.system and worker.system.
	Chat chat.Config `koanf:"chat"`
}

// Planner is the agent that reads the question.
type Planner struct {
	// System is the system message; in tags, words before the question. "" is none in tags, and in chat a sentence that describes a
	// planner. Defaults to "".
	System string `koanf:"system"`
	// Tools are the task's tools that the planner may call itself, by name; in tags there can be none. Defaults to none.
	Tools []string `koanf:"tools"`
}

// Worker is the agent that answers a task.
type Worker struct {
	// System is the system message; in tags, words before the task. "" is none in tags, and in chat a sentence that describes a worker.
	// Defaults to "".
	System string `koanf:"system"`
	// Tools are the task's tools that a worker may call, by name. None is all. Defaults to none.
	Tools []string `koanf:"tools"`
	// MaxTurns bounds the tool calls of a worker; 0 leaves that to the episode's limit. Defaults to 0.
	MaxTurns int `koanf:"max_turns"`
	// MaxTokens bounds a worker's context in tokens; 0 leaves that to the episode's limit. Defaults to 0.
	MaxTokens int `koanf:"max_tokens"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{
		Notation: NotationAuto, Delegate: "delegate", MaxWorkers: 4, Cut: producers.DefaultCut(),
		Tags: search.DefaultConfig(), Chat: chat.DefaultConfig(),
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.OneOf("notation", c.Notation, NotationAuto, NotationTags, NotationChat),
		check.Given("delegate", c.Delegate, "name the call that gives a worker a task"),
		check.That(c.Delegate != c.Tags.Search && c.Delegate != c.Tags.Info && c.Delegate != c.Tags.Answer, "delegate",
			"%q: it is a tag already: name another", c.Delegate),
		check.Between("max_workers", c.MaxWorkers, 1, mostWorkers),
		check.NotNegative("worker.max_turns", c.Worker.MaxTurns),
		check.NotNegative("worker.max_tokens", c.Worker.MaxTokens),
		check.Section("cut", c.Cut.Validate()),
		check.Section("tags", c.Tags.Validate()),
		check.Section("chat", c.Chat.Validate()),
		check.That(c.Chat.System == "", "chat.system",
			"%q: the planner and the worker have one each: set planner.system and worker.system", c.Chat.System),
	)
}

// checkTools refuses a task whose tools are not the tools that the team calls.
func (c Config) checkTools(specs []producers.ToolSpec) error {
	has := func(name string) bool {
		return slices.ContainsFunc(specs, func(s producers.ToolSpec) bool { return s.Name == name })
	}
	var faults []error
	if has(c.Delegate) {
		faults = append(faults, fmt.Errorf("delegate: %q: the task has a tool of this name: choose another", c.Delegate))
	}
	if len(specs) == 0 { // the limits allow no call
		return errors.Join(faults...)
	}
	known := func(key string, names []string) {
		for i, name := range names {
			if !has(name) {
				faults = append(faults, fmt.Errorf("%s[%d]: %q: the task has %s", key, i, name, toolNames(specs)))
			}
		}
	}
	known("planner.tools", c.Planner.Tools)
	known("worker.tools", c.Worker.Tools)
	return errors.Join(faults...)
}

// Texts are the texts that the agent may write to the policy.
func (c *Config) Texts() []string {
	out := []string{c.Tags.Feedback, c.Planner.System, c.Worker.System, failureText(refusedText(c.MaxWorkers)), failureText(noTask)}
	for _, why := range failureReasons() {
		out = append(out, failureText(why))
	}
	return out
}

// TagTokens are the tags of the agent's own, for a task that makes its vocabulary.
func (c *Config) TagTokens() []string {
	if c.Notation == NotationChat {
		return nil
	}
	return append([]string{"<" + c.Delegate + ">", "</" + c.Delegate + ">"}, c.Tags.TagTokens()...)
}
