package trainer

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// numbered are prompts whose text is their number.
type numbered struct{}

func (numbered) Prompt(cursor uint64) schemas.Prompt { return schemas.Prompt{ID: fmt.Sprint(cursor)} }

// Any run of cursors holds each task in proportion to its weight, and each task goes through its own prompts one by one.
func TestMixHoldsEachTaskInProportion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 9).Draw(rt, "weights")
		var tasks []Task
		total := 0.0
		for i, w := range weights {
			tasks = append(tasks, Task{Name: fmt.Sprint("t", i), Weight: w, Prompts: numbered{}})
			total += float64(max(1, w))
		}
		mixed, err := Mix(tasks...)
		require.NoError(rt, err)
		again, err := Mix(tasks...)
		require.NoError(rt, err)
		n := uint64(rapid.IntRange(1, 900).Draw(rt, "cursors"))
		came := map[string]int{}
		least, most := map[string]float64{}, map[string]float64{}
		for cursor := range n {
			p := mixed.Prompt(cursor)
			require.Equal(rt, fmt.Sprint(came[p.Task]), p.ID, "the task's own order, without a gap")
			came[p.Task]++
			for i, task := range tasks {
				ahead := float64(came[task.Name]) - float64(cursor+1)*float64(max(1, weights[i]))/total
				require.Less(rt, math.Abs(ahead), 1+1e-9, "task %s after %d prompts", task.Name, cursor+1)
				least[task.Name], most[task.Name] = min(least[task.Name], ahead), max(most[task.Name], ahead)
				require.Less(rt, most[task.Name]-least[task.Name], 2+1e-9, "task %s in some run of cursors", task.Name)
			}
		}
		for range 20 {
			cursor := rapid.Uint64Range(0, n-1).Draw(rt, "cursor")
			require.Equal(rt, mixed.Prompt(cursor), again.Prompt(cursor), "the order depends on nothing else")
		}
	})
}

// A single task is asked for at its own cursors, whatever its weight.
func TestMixOfOneTaskIsItsOwnOrder(t *testing.T) {
	t.Parallel()
	limits := schemas.Limits{MaxTurns: 1, MaxTokens: 9}
	mixed, err := Mix(Task{Name: "quiz", Weight: 7, Prompts: numbered{}, Limits: limits})
	require.NoError(t, err)
	require.Equal(t, []string{"quiz"}, mixed.Tasks())
	for _, cursor := range []uint64{0, 1, 2, 1 << 40, math.MaxUint64} {
		require.Equal(t, Prompt{Task: "quiz", Prompt: schemas.Prompt{ID: fmt.Sprint(cursor)}, Limits: limits}, mixed.Prompt(cursor))
	}
}

func TestMixSpreadsTheTasks(t *testing.T) {
	t.Parallel()
	mixed, err := Mix(Task{Name: "a", Weight: 300, Prompts: numbered{}}, Task{Name: "b", Weight: 100, Prompts: numbered{}})
	require.NoError(t, err)
	order := ""
	for cursor := range uint64(12) {
		order += mixed.Prompt(cursor).Task
	}
	require.Equal(t, "aaabaaabaaab", order)
}

func TestMixRefuses(t *testing.T) {
	t.Parallel()
	_, err := Mix()
	require.EqualError(t, err, "mix tasks: there is none")
	_, err = Mix(
		Task{Name: "a b", Weight: -1},
		Task{Name: "quiz", Weight: 10001, Prompts: numbered{}, Limits: schemas.Limits{MaxTurns: -1, Timeout: -1}},
		Task{Name: "quiz", Prompts: numbered{}},
	)
	for _, want := range []string{
		`task "a b": illegal name: task "a b": only letters`, "weight: -1: must be between 1 and 10000", "prompts: nil: a task needs prompts",
		`task "quiz": weight: 10001: must be between 1 and 10000`, "limits.max_turns: -1: must not be negative", "limits.max_tokens: 0: must be positive",
		"limits.timeout: -1ns: must not be negative", `task "quiz": two tasks have this name`,
	} {
		require.ErrorContains(t, err, want)
	}
}
