package trainer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// maxWeight bounds the weight of a task, so that the order of a period fits in memory.
const maxWeight = 10_000

// Task is one of the tasks that a run mixes.
type Task struct {
	// Name is the task's name on tickets: 1 to 64 letters, digits, '_' and '-'.
	Name string
	// Weight is the task's share of the prompts, relative to the weights of the other tasks, 1 to 10 000. 0 is 1.
	Weight int
	// Prompts is the endless order of the task's own prompts. The prompt at a cursor is always the same.
	Prompts interface {
		Prompt(cursor uint64) schemas.Prompt
	}
	// Limits bound each rollout of the task. The zero value stands for those of [Config].
	Limits schemas.Limits
}

// validate reports every fault.
func (t Task) validate() error {
	var limits error
	if t.Limits != (schemas.Limits{}) {
		limits = check.Section("limits", check.All(
			check.NotNegative("max_turns", t.Limits.MaxTurns),
			check.Positive("max_tokens", t.Limits.MaxTokens),
			check.NotNegative("timeout", t.Limits.Timeout),
		))
	}
	return check.All(
		streams.CheckName("task", t.Name),
		check.That(t.Weight >= 0 && t.Weight <= maxWeight, "weight", "%d: must be between 1 and %d", t.Weight, maxWeight),
		check.That(t.Prompts != nil, "prompts", "nil: a task needs prompts"),
		limits,
	)
}

// Mix returns the prompts of several tasks in one order: each task's own prompts in their order, the tasks by weight. Of
// the first n prompts a task has its share, n times its weight over the sum of all weights, to less than one prompt; so has
// it of any run of cursors, to less than two. The prompts of a single task come as they are.
//
// The task at a cursor depends only on the tasks' weights and on their order in the arguments.
func Mix(tasks ...Task) (Prompts, error) {
	if len(tasks) == 0 {
		return nil, errors.New("mix tasks: there is none")
	}
	m := &mix{tasks: slices.Clone(tasks)}
	var faults []error
	names := map[string]bool{}
	for i, t := range m.tasks {
		if err := t.validate(); err != nil {
			faults = append(faults, fmt.Errorf("task %q: %w", t.Name, err))
		}
		if names[t.Name] {
			faults = append(faults, fmt.Errorf("task %q: two tasks have this name", t.Name))
		}
		names[t.Name] = true
		m.tasks[i].Weight = max(1, t.Weight)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("mix tasks: %w", err)
	}
	m.arrange()
	return m, nil
}

// mix is the order of several tasks. It repeats after a period of as many cursors as the weights add up to, without their
// common divisor.
type mix struct {
	tasks []Task
	// period says for each cursor of a period which task it asks for, and how many cursors of the period before it do.
	period []turn
	// each is how many cursors of a period ask for each task.
	each []uint64
}

// turn is one cursor of a period.
type turn struct {
	task   int
	before uint64
}

// arrange gives each cursor of a period to the task that is due first. The k-th prompt of a task with weight w among W may
// come from cursor floor((k-1)W/w) on and is due before cursor ceil(kW/w): as the shares add up to 1 there is an order that
// keeps all these bounds, and the one by the earliest due cursor is such an order (Horn, 1974; Baruah et al., Proportionate
// Progress, 1996).
func (m *mix) arrange() {
	divisor := 0
	for _, t := range m.tasks {
		divisor = gcd(divisor, t.Weight)
	}
	total := 0
	m.each = make([]uint64, len(m.tasks))
	for i, t := range m.tasks {
		m.each[i] = uint64(t.Weight / divisor)
		total += t.Weight / divisor
	}
	came := make([]uint64, len(m.tasks))
	m.period = make([]turn, total)
	whole := uint64(total)
	for cursor := range m.period {
		next, nextDue := -1, uint64(0)
		for i, w := range m.each {
			from, due := came[i]*whole/w, ((came[i]+1)*whole+w-1)/w
			if from <= uint64(cursor) && came[i] < w && (next < 0 || due < nextDue) {
				next, nextDue = i, due
			}
		}
		m.period[cursor] = turn{next, came[next]}
		came[next]++
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Tasks are the names of the tasks.
func (m *mix) Tasks() []string {
	names := make([]string, len(m.tasks))
	for i, t := range m.tasks {
		names[i] = t.Name
	}
	return names
}

// Prompt is the prompt at a cursor.
func (m *mix) Prompt(cursor uint64) Prompt {
	length := uint64(len(m.period))
	at := m.period[cursor%length]
	t := m.tasks[at.task]
	return Prompt{Task: t.Name, Prompt: t.Prompts.Prompt(cursor/length*m.each[at.task] + at.before), Limits: t.Limits}
}
