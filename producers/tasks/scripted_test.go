package tasks_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/tasks"
)

// numbers writes a demonstration as its number of steps, up to a limit.
type numbers struct{ most int }

func (n numbers) Demonstrate(d tasks.Demonstration) ([]int32, []uint8, error) {
	if len(d.Steps) > n.most {
		return nil, nil, errors.New("too many steps")
	}
	return []int32{int32(len(d.Steps))}, []uint8{1}, nil
}

func TestScriptedDemonstrations(t *testing.T) {
	t.Parallel()
	script := tasks.NewScripted(func(i uint64) tasks.Demonstration { return tasks.Demonstration{Steps: make([]tasks.Step, i)} })
	tokens, mask := script.Demonstration(3)
	require.Empty(t, tokens, "no agent has written them")
	require.Empty(t, mask)

	_, err := script.Rewrite(numbers{most: 62})
	require.EqualError(t, err, "demonstration 63: too many steps")

	written, err := script.Rewrite(numbers{most: 63})
	require.NoError(t, err)
	tokens, mask = written.Demonstration(3)
	require.Equal(t, []int32{3}, tokens)
	require.Equal(t, []uint8{1}, mask)
	tokens, _ = written.Demonstration(64)
	require.Empty(t, tokens, "the agent cannot write this one")
}
