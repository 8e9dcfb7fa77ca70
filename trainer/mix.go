package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/turns"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// maxWeight bounds the weight of a task, so that the order of a period fits in memory.
const maxWeight = 10_000

// Task is a task of a run's mix.
type Task struct {
	// Name is the task's name on tickets: 1 to 64 letters, digits, '_' and '-'.
	Name string
	// Weight is the task's share of the prompts, relative to the weights of the other tasks, 1 to 10 000. 0 is 1.
	Weight int
	// Prompts is the endless order of the task's own prompts. The prompt at a cursor is always the same. Prompts with the method End of
	// [Finite] end there; such a task is alone in its run.
	Prompts interface {
		Prompt(cursor uint64) schemas.Prompt
	}
	// Limits bound each rollout of the task. The zero value stands for the limits of [Config].
	Limits schemas.Limits
	// Turns bounds the tool calls of a rollout by the version at which its ticket is issued; nil leaves that to Limits.
	Turns TurnSchedule
}

// validateTask reports every fault.
func (t Task) validateTask() error {
	var limits error
	if t.Limits != (schemas.Limits{}) {
		limits = check.Section("limits", check.All(
			check.NotNegative("max_turns", t.Limits.MaxTurns),
			check.Positive("max_tokens", t.Limits.MaxTokens),
			check.NotNegative("max_total_tokens", t.Limits.MaxTotalTokens),
			check.NotNegative("max_segments", t.Limits.MaxSegments),
			check.NotNegative("timeout", t.Limits.Timeout),
		))
	}
	return check.All(
		streams.CheckName("task", t.Name),
		check.That(t.Weight >= 0 && t.Weight <= maxWeight, "weight", "%d: must be between 1 and %d", t.Weight, maxWeight),
		check.That(t.Prompts != nil, "prompts", "nil: a task needs prompts"),
		limits,
		check.Section("turns", t.Turns.Validate()),
	)
}

// Mix returns the prompts of several tasks in one order: each task's own prompts in their order, the tasks by weight. Among the first n
// prompts a task has its share, n times its weight over the sum of all weights, to less than 1 prompt; among any n consecutive prompts, to
// less than 2. The prompts of a single task come as they are.
//
// The task at a cursor depends only on the tasks' weights and on their order in the arguments.
func Mix(tasks ...Task) (Prompts, error) {
	if len(tasks) == 0 {
		return nil, errors.New("mix tasks: there is none")
	}
	m := &taskMix{tasks: slices.Clone(tasks)}
	var faults []error
	var weights []int
	names := map[string]bool{}
	for i, t := range m.tasks {
		if err := t.validateTask(); err != nil {
			faults = append(faults, fmt.Errorf("task %q: %w", t.Name, err))
		}
		if names[t.Name] {
			faults = append(faults, fmt.Errorf("task %q: two tasks have this name", t.Name))
		}
		names[t.Name] = true
		if _, ends := t.Prompts.(interface{ End() uint64 }); ends && len(tasks) > 1 {
			faults = append(faults, fmt.Errorf("task %q: its prompts end, which only those of a run's single task may", t.Name))
		}
		m.tasks[i].Weight = max(1, t.Weight)
		weights = append(weights, m.tasks[i].Weight)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("mix tasks: %w", err)
	}
	m.period, m.each = turns.Arrange(weights)
	return m, nil
}

// taskMix is the order of several tasks. It repeats after a period of as many cursors as the weights add up to, without their
// common divisor.
type taskMix struct {
	tasks []Task
	// period has the task of each cursor of a period, each the number of cursors in a period of each task.
	period []turns.Turn
	each   []uint64
}

// Tasks are the names of the tasks.
func (m *taskMix) Tasks() []string {
	names := make([]string, len(m.tasks))
	for i, t := range m.tasks {
		names[i] = t.Name
	}
	return names
}

// End is the end of a single task's prompts; math.MaxUint64 where they have none.
func (m *taskMix) End() uint64 {
	if f, ends := m.tasks[0].Prompts.(interface{ End() uint64 }); ends {
		return f.End()
	}
	return math.MaxUint64
}

// Prompt is the prompt at a cursor.
func (m *taskMix) Prompt(cursor uint64) Prompt {
	length := uint64(len(m.period))
	at := m.period[cursor%length]
	t := m.tasks[at.Of]
	return Prompt{Task: t.Name, Prompt: t.Prompts.Prompt(cursor/length*m.each[at.Of] + at.Before), Limits: t.Limits, Turns: t.Turns}
}
