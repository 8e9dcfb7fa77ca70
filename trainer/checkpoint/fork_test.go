package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fork and its parent share files, and neither changes the other's.
func TestAForkAndItsParentGoOnApart(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "fork")
	parent, err := Open(Config{Dir: from, Keep: 2, Messages: 1})
	require.NoError(t, err)
	save(t, parent, 0, 1, 2)
	_, err = Fork(from, to, "side", 1)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, parent.Close())
	var lack *NoCheckpointError
	_, err = Fork(from, to, "side", 0)
	require.ErrorAs(t, err, &lack)
	require.Equal(t, []int64{2, 1}, lack.Have)
	require.NoDirExists(t, to)

	made, err := Fork(from, to, "side", 1)
	require.NoError(t, err)
	require.Positive(t, made.Linked)
	require.Zero(t, made.Copied)
	whole := func(dir string) {
		found, err := Verify(dir, nil)
		require.NoError(t, err)
		require.Empty(t, found.Damage)
	}
	whole(from)
	whole(to)
	records, err := ReadRecords(to)
	require.NoError(t, err)
	was, err := ReadRecords(from)
	require.NoError(t, err)
	require.Equal(t, was[0], records[0])
	require.Equal(t, &RecordFork{Parent: "r", Chain: was[1].Chain}, records[1].Forked)

	side, err := Open(Config{Dir: to, Keep: 1, Messages: 1})
	require.NoError(t, err)
	c, damage, err := side.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.Equal(t, "side", c.State.Run)
	save(t, side, 2, 3)
	require.NoError(t, side.Close())
	whole(from)
	require.NoError(t, os.RemoveAll(from))
	whole(to)
}
