package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run that is killed before the first line of its record is whole; a record that was removed later is missed.
func TestARecordThatIsNotBegunIsNoDamage(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	require.True(t, IsStore(s.Dir()))
	require.False(t, IsStore(t.TempDir()))
	verify := func() *Verification {
		found, err := Verify(s.Dir(), nil)
		require.NoError(t, err)
		return found
	}
	path := filepath.Join(s.Dir(), RecordFile)
	require.Empty(t, verify().Damage)
	require.Contains(t, verify().Notes[0], "no line of the record is written yet")
	save(t, s, 0)
	require.Empty(t, verify().Notes)
	line, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.Empty(t, verify().Damage)
	for _, size := range []int{0, 1, len(line) - 1} { // cut off within its first line
		require.NoError(t, os.WriteFile(path, line[:size], 0o600))
		found := verify()
		require.Empty(t, found.Damage)
		require.EqualValues(t, 0, found.Unwritten)
	}
	_, _, err = s.Load()
	require.NoError(t, err)
	save(t, s, 1)
	require.NoError(t, os.Remove(path))
	require.Equal(t, "no such file", verify().Damage[0].Have)
}

// The first line of a record that begins with a later step, as a shadow's, was called damage while it was written.
func TestAFirstLineOfALaterStepMayBeCutOff(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	save(t, s, 7)
	path := filepath.Join(s.Dir(), RecordFile)
	line, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, line[:9], 0o600))
	found, err := Verify(s.Dir(), nil)
	require.NoError(t, err)
	require.Empty(t, found.Damage)
	require.EqualValues(t, 7, found.Unwritten)
}

// A reference policy that was put there by hand is hashed at the first start: a kill there left half of its manifest, and the next start
// refused the folder.
func TestAKillWithinTheHashingOfAReferenceIsMended(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	_, err := reference(t, s, 0)
	require.NoError(t, err)
	manifest := filepath.Join(s.Dir(), referenceDir, manifestFile)
	require.NoError(t, os.Remove(manifest))
	require.NoError(t, os.WriteFile(manifest+tmpSuffix, []byte(`{"format":`), 0o600))
	for range 2 {
		_, err = reference(t, s, 7)
		require.NoError(t, err)
	}
	require.NoError(t, verifyFolder(filepath.Dir(manifest), 0))
}

// A line that is there as the checkpoint has it stays: a start writes nothing that a kill could cut off.
func TestAStartLeavesAWholeRecordAsItIs(t *testing.T) {
	t.Parallel()
	s, path, data := recorded(t)
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(path, before.ModTime().Add(-1e9), before.ModTime().Add(-1e9)))
	before, err = os.Stat(path)
	require.NoError(t, err)
	_, _, err = s.Load()
	require.NoError(t, err)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
	save(t, s, 3)
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, data, now[:len(data)])
}
