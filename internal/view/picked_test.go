package view

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
)

// The three rollouts are of the newest step that trained on any, and the third is of another group where there is one.
func TestTheThreeRolloutsAreOfTheNewestStep(t *testing.T) {
	t.Parallel()
	row := func(id, group string, step int32, rewarded bool) runfolder.Listed {
		return runfolder.Listed{ID: id, Group: group, Step: step, Rewarded: rewarded}
	}
	rows := newestStep([]runfolder.Listed{row("d", "g9", 3, false), row("a", "g1", 2, true), row("b", "g1", 2, true), row("c", "g2", 2, true), row("z", "g0", 1, true)})
	require.Len(t, rows, 3)
	require.Equal(t, "c", otherRow(rows, &rows[0], &rows[1]).ID, "of another group")
	require.Equal(t, "b", otherRow(rows[:2], &rows[0], &rows[0]).ID)
	require.Nil(t, otherRow(rows[:1], &rows[0], &rows[0]))
	require.Empty(t, newestStep(nil))

	picked, err := openRun(Run{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}}).pickRollouts(t.Context())
	require.NoError(t, err)
	require.Equal(t, &Picked{Step: -1}, picked)
}
