package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run that went back behind whole light checkpoints, since a batch that they need was gone, was called damaged until it had come to their
// steps again.
func TestARunThatWentBackBehindLightCheckpointsIsWhole(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir(), Keep: 2, Messages: 1, Batches: -1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Save(t.Context(), carrying(0, 1)))
	for step := range int64(5) {
		require.NoError(t, s.Save(t.Context(), light(carrying(step+1, 1))))
	}
	whole := func() *Verification {
		t.Helper()
		found, err := Verify(s.Dir(), nil)
		require.NoError(t, err)
		require.Empty(t, found.Damage)
		list, err := List(s.Dir())
		require.NoError(t, err)
		lost, err := list.LostAfter(found.Last)
		require.NoError(t, err)
		require.Nil(t, lost)
		return found
	}
	whole()
	require.NoError(t, os.Remove(BatchPath(s.Dir(), 2)))
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.NotEmpty(t, damage)
	require.Zero(t, c.State.Step)
	found := whole()
	require.Zero(t, found.Last)
	require.Contains(t, found.Notes, "the checkpoint of step 5 was passed over by a start, and the run went back")

	// Without the mark of the start it is as if somebody had removed the lines.
	mark := filepath.Join(s.Path(5), passedFile)
	require.NoError(t, os.Remove(mark))
	found, err = Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Contains(t, found.Damage[0].Want, "the lines of steps 1 to 4")
	_, _, err = s.Load()
	require.NoError(t, err)

	for step := int64(1); step <= 6; step++ {
		c := light(carrying(step, 2))
		c.Record.NextCursor += 100 // otherwise than before
		require.NoError(t, s.Save(t.Context(), c))
		require.Equal(t, step, whole().Last)
		if step == 3 {
			again, _, err := s.Load()
			require.NoError(t, err)
			require.EqualValues(t, 3, again.State.Step)
			whole()
		}
	}
	require.NoFileExists(t, mark)
	again, damage, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.EqualValues(t, 6, again.State.Step)
}
