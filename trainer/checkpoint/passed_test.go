package checkpoint

import (
	"bytes"
	"errors"
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

	state, err := ReadState(s.Dir())
	require.NoError(t, err)
	require.Zero(t, state.Step)

	// Without the mark of the start it is as if somebody had removed the lines.
	mark := filepath.Join(s.Path(5), passedFile)
	text, err := os.ReadFile(mark)
	require.NoError(t, err)
	require.NoError(t, os.Remove(mark))
	found, err = Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Contains(t, found.Damage[0].Want, "the lines of steps 1 to 4")
	_, _, err = s.Load()
	require.ErrorIs(t, err, ErrRecord)
	require.NoError(t, os.WriteFile(mark, text, 0o600))
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

// A record whose last lines were removed or changed was not missed by a start from a light checkpoint: the run went back to the full
// checkpoint before, and its own start removed the trace. As below a full checkpoint it is refused, and nothing is changed.
func TestALightCheckpointWhoseLinesAreGoneIsNotPassedOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(lines [][]byte) [][]byte
		at    int64 // -1: the start is refused
	}{
		"all are there":      {func(l [][]byte) [][]byte { return l }, 6},
		"the last":           {func(l [][]byte) [][]byte { return l[:6] }, 6}, // a kill may have come before it
		"the last two":       {func(l [][]byte) [][]byte { return l[:5] }, -1},
		"all since the full": {func(l [][]byte) [][]byte { return l[:4] }, -1},
		"a changed line":     {func(l [][]byte) [][]byte { l[5] = bytes.Replace(l[5], []byte("{"), []byte("{ "), 1); return l }, -1},
		"an empty file":      {func([][]byte) [][]byte { return nil }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Dir: t.TempDir(), Keep: 2, Messages: 1, Batches: -1}
			s := saveBoth(t, cfg, true, false, false, true, false, false, false)
			path := filepath.Join(cfg.Dir, RecordFile)
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			spoilt := bytes.Join(test.spoil(bytes.SplitAfter(bytes.Clone(whole), []byte("\n"))), nil)
			require.NoError(t, os.WriteFile(path, spoilt, 0o600))
			c, _, err := reload(t, s)
			if test.at >= 0 {
				require.NoError(t, err)
				require.Equal(t, test.at, c.State.Step)
				found, err := Verify(cfg.Dir, nil)
				require.NoError(t, err)
				require.Empty(t, found.Damage)
				return
			}
			require.ErrorIs(t, err, ErrRecord)
			for _, want := range []string{"put the file back from a copy", "remove the checkpoints after that of step 3"} {
				require.ErrorContains(t, err, want)
			}
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, spoilt, now)
			found, err := Verify(cfg.Dir, nil)
			require.NoError(t, err)
			require.NotEmpty(t, found.Damage)
			// Both ways out.
			require.NoError(t, os.WriteFile(path, whole, 0o600))
			c, _, err = s.Load()
			require.NoError(t, err)
			require.EqualValues(t, 6, c.State.Step)
			require.NoError(t, os.WriteFile(path, spoilt, 0o600))
			require.NoError(t, errors.Join(os.RemoveAll(s.Path(6)), os.RemoveAll(s.Path(5)), os.RemoveAll(s.Path(4))))
			c, _, err = s.Load()
			require.NoError(t, err)
			require.EqualValues(t, 3, c.State.Step)
		})
	}
}
