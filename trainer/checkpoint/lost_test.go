package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding 14.2: lines of another run, chained well and as many as are wanted, were taken for those that the newest checkpoint goes on from.
func TestWellChainedLinesThatTheCheckpointDoesNotGoOnFromAreFound(t *testing.T) {
	t.Parallel()
	s, path, data := recorded(t)
	other := open(t, t.TempDir())
	for step := range int64(3) {
		c := sample(step)
		c.Record.NextCursor = 2*uint64(step) + 7
		require.NoError(t, other.Save(t.Context(), c))
	}
	lines, err := os.ReadFile(filepath.Join(other.Dir(), RecordFile))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.Path(2)))
	require.NoError(t, os.WriteFile(path, lines, 0o600))
	found, err := Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Len(t, found.Damage, 1)
	require.Contains(t, found.Damage[0].Want, "bytes that the checkpoint goes on from")
	_, _, err = s.Load()
	require.ErrorIs(t, err, ErrRecord, "as a start says")

	// A file that was left empty on purpose lacks the lines too, until a start has begun it anew.
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	found, err = Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Contains(t, found.Damage[0].Want, "the lines of steps 0 to 2")
	_, _, err = s.Load()
	require.NoError(t, err)
	found, err = Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Empty(t, found.Damage)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	found, err = Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Empty(t, found.Damage)
}

// A checkpoint that goes on from nothing misses no lines, as that with which a shadow begins at a later step.
func TestACheckpointThatGoesOnFromNothingMissesNoLines(t *testing.T) {
	t.Parallel()
	for _, before := range []int64{0, 1} {
		s := open(t, t.TempDir())
		save(t, s, 7-before)
		if before > 0 {
			save(t, s, 7)
		}
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), RecordFile), nil, 0o600))
		list, err := List(s.Dir())
		require.NoError(t, err)
		lost, err := list.LostAfter(-1)
		require.NoError(t, err)
		require.Equal(t, before > 0, lost != nil)
	}
}

// Finding 14.2, its other side: a kill between a checkpoint and its line loses no lines.
func TestWhatAKillWithinASaveLeavesHasNoLinesThatAreGone(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(*Store) error{
		"save":         func(s *Store) error { return s.Save(t.Context(), carrying(3, 44)) },
		"a light save": func(s *Store) error { return s.Save(t.Context(), light(carrying(3, 44))) },
		"renew":        func(s *Store) error { return s.Renew(t.Context(), carrying(2, 44)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, t.TempDir())
			for step := range int64(3) {
				require.NoError(t, s.Save(t.Context(), carrying(step, 11)))
			}
			s.After = func(stage string) {
				found, err := Verify(s.Dir(), nil)
				require.NoError(t, err)
				for _, d := range found.Damage {
					require.NotContains(t, d.Want, "the lines of step", stage)
					require.NotContains(t, d.Want, "goes on from", stage)
				}
				list, err := List(s.Dir())
				require.NoError(t, err)
				lost, err := list.LostAfter(found.Last)
				require.NoError(t, err)
				require.Nil(t, lost, stage)
			}
			require.NoError(t, last(s))
			data, err := os.ReadFile(filepath.Join(s.Dir(), RecordFile))
			require.NoError(t, err)
			require.True(t, bytes.HasSuffix(data, []byte("\n")))
		})
	}
}
