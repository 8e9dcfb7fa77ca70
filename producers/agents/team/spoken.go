package team

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/chat"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// spoken speaks a model's own chat template.
type spoken struct{ *chat.Agent }

// The system messages of agents that have none of their own.
const (
	plannerSystem = "Answer the question. You have workers: give them tasks by the tool %s, one step at a time, and answer from what they find out. " +
		"A worker sees its task alone, so say in the task all that it needs."
	workerSystem = "Do the task with your tools, and answer with what was asked for alone."
)

// newSpoken are the two roles in chat.
func newSpoken(ctx context.Context, cfg Config, o agents.Opening) (planner, worker *spoken, err error) {
	pick := func(names []string) []producers.ToolSpec {
		return slices.DeleteFunc(slices.Clone(o.Tools), func(s producers.ToolSpec) bool { return !slices.Contains(names, s.Name) })
	}
	var plans, works []producers.ToolSpec
	if len(o.Tools) > 0 { // else the limits allow no call
		plans, works = append([]producers.ToolSpec{cfg.callSpec()}, pick(cfg.Planner.Tools)...), o.Tools
	}
	if len(cfg.Worker.Tools) > 0 {
		works = pick(cfg.Worker.Tools)
	}
	open := func(role, system, otherwise string, specs []producers.ToolSpec) (*spoken, error) {
		own := cfg.Chat
		if own.System = system; system == "" {
			own.System = otherwise
		}
		of := o
		of.Config, of.Tools = &own, specs
		agent, err := chat.Type().Open(ctx, of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}
		return &spoken{agent.(*chat.Agent)}, nil
	}
	if planner, err = open(PlannerName, cfg.Planner.System, fmt.Sprintf(plannerSystem, cfg.Delegate), plans); err != nil {
		return nil, nil, err
	}
	worker, err = open(WorkerRole, cfg.Worker.System, workerSystem, works)
	return planner, worker, err
}

// spokenContext is a conversation in chat.
type spokenContext struct{ talk *chat.Talk }

func (s *spoken) beginConversation(p schemas.Prompt, calls, _ bool) (conversation, []int32, error) {
	talk, ids, err := s.Begin(p, calls)
	return spokenContext{talk}, ids, err
}

func (c spokenContext) runConversation(ctx context.Context, in *producers.Context) (answer string, stop schemas.StopReason, err error) {
	return c.talk.Drive(ctx, in)
}

// textHeard returns the text: a conversation makes no control token of it, whatever it spells.
func (s *spoken) textHeard(text string) string { return text }

func (s *spoken) parseTask(arguments string) (string, error) {
	var fields map[string]any
	if err := json.Unmarshal([]byte(arguments), &fields); err == nil && len(fields) == 1 {
		if task, ok := fields["task"].(string); ok {
			return task, nil
		}
	}
	return "", fmt.Errorf("the arguments must be {%q: a text}", "task")
}

func (s *spoken) callArguments(task string) string {
	data, err := json.Marshal(map[string]string{"task": task})
	if err != nil {
		return "" // a text always has a JSON
	}
	return string(data)
}

func (s *spoken) messageFormat() producers.Format { return s.Format() }

func (s *spoken) writeDemonstration(d tasks.Demonstration) (tokens []int32, mask []uint8, err error) {
	return s.Demonstrate(d)
}
