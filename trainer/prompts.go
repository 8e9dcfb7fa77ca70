package trainer

import (
	"math"

	"github.com/weir-rl/weir/schemas"
)

// Prompts is the endless order of a run's prompts: at each cursor a prompt, its task and the limits of its rollouts. [Mix] makes a Prompts
// from tasks.
type Prompts interface {
	// Tasks are the names of the tasks that Prompt asks for, at least one. An open group of a checkpoint whose task is not
	// among them is dropped.
	Tasks() []string
	// Prompt is the prompt at a cursor, always the same.
	Prompt(cursor uint64) Prompt
}

// Finite is a [Prompts] with an end. The run ends when the prompts before it have ended, though Config.Steps may be more: the last step
// trains on what is left, with at least one group.
type Finite interface {
	Prompts
	// End is the first cursor without a prompt, always the same; math.MaxUint64 is no end.
	End() uint64
}

// endOf returns the first cursor without a prompt.
func endOf(p Prompts) uint64 {
	if f, ok := p.(Finite); ok {
		return f.End()
	}
	return math.MaxUint64
}

// Prompt is a prompt of a task.
type Prompt struct {
	schemas.Prompt
	// Task is the name of the prompt's task, for which producers have an environment.
	Task string
	// Limits bound each rollout of the prompt. The zero value stands for the limits of [Config].
	Limits schemas.Limits
	// Turns bounds the tool calls of a rollout by the version at which its ticket is issued; nil leaves that to Limits.
	Turns TurnSchedule
}

// Rollout are the bounds that a ticket carries. The bound on segments is not among them: the trainer holds accepted trajectories to it.
func (l Limits) Rollout() schemas.Limits {
	return schemas.Limits{MaxTurns: l.MaxTurns, MaxTokens: l.MaxTokens, MaxTotalTokens: l.MaxTotalTokens, Timeout: l.Timeout}
}
