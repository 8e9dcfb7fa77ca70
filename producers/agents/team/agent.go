package team

import (
	"context"
	"fmt"
	"strconv"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// PlannerName is the name of the agent that reads the question, in segments and rewards.
const PlannerName = "planner"

// WorkerName is the name of a worker, counted from 1 in the order in which they are given their tasks.
func WorkerName(number int) string { return WorkerRole + "-" + strconv.Itoa(number) }

// WorkerRole is the role of every worker: see [schemas.Role].
const WorkerRole = "worker"

// Agent is a producers.Agent; it keeps nothing between episodes.
type Agent struct {
	cfg             Config
	planner, worker speaker
}

// speaker writes and reads the contexts of a role.
type speaker interface {
	// begin is a context about a prompt; without calls the role can make none. own says that the policy wrote the prompt.
	beginConversation(p schemas.Prompt, calls, own bool) (conversation, []int32, error)
	// heard is a text that the policy wrote in another context as this role may be told it.
	textHeard(text string) string
	// task reads the arguments of a delegation, and arguments writes them.
	parseTask(arguments string) (string, error)
	callArguments(task string) string
	messageFormat() producers.Format
	writeDemonstration(d tasks.Demonstration) (tokens []int32, mask []uint8, err error)
}

// conversation is a context that goes on.
type conversation interface {
	// drive goes on to the answer. Where there is none the answer is "" and stop says why.
	runConversation(ctx context.Context, c *producers.Context) (answer string, stop schemas.StopReason, err error)
}

// Opening are the tokens that each episode of a prompt begins with.
func (a *Agent) Opening(p schemas.Prompt) []int32 {
	_, ids, err := a.planner.beginConversation(p, true, false)
	if err != nil {
		return nil // the episode fails and tells
	}
	return ids
}

// Format says how the planner's context is written.
func (a *Agent) Format() producers.Format { return a.planner.messageFormat() }

// Run drives an episode: the planner's context, and a worker's for each of its delegations.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	calls := len(e.Tools()) > 0
	talk, ids, err := a.planner.beginConversation(e.Prompt(), calls, false)
	if err != nil {
		return err
	}
	part := producers.Part{Agent: PlannerName, Tools: append([]string{}, a.cfg.Planner.Tools...)}
	if calls {
		part.Own = []producers.Tool{&delegation{agent: a, episode: e}}
	}
	c, err := e.OpenPart(part, ids)
	if err != nil {
		return err
	}
	answer, stop, err := talk.runConversation(ctx, c)
	if err != nil {
		return err
	}
	c.Answer(answer)
	e.Finish(answer, stop)
	return nil
}

// Demonstrate writes a demonstration of a role; "" is the planner's.
func (a *Agent) Demonstrate(d tasks.Demonstration) (tokens []int32, mask []uint8, err error) {
	if err := d.AskedAlone(); err != nil {
		return nil, nil, err
	}
	switch d.Role {
	case WorkerRole:
		return a.worker.writeDemonstration(d)
	case "", PlannerName:
	default:
		return nil, nil, fmt.Errorf("role %q: want %s or %s", d.Role, PlannerName, WorkerRole)
	}
	steps := append([]tasks.Step{}, d.Steps...)
	for i, s := range steps {
		if s.Tool == "" || s.Tool == a.cfg.Delegate {
			steps[i].Tool, steps[i].Arguments = a.cfg.Delegate, a.planner.callArguments(s.Arguments)
		}
	}
	d.Steps = steps
	return a.planner.writeDemonstration(d)
}
