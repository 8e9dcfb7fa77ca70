package archive

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A kill while a segment was removed, or begun, left lines without their file of numbers, which weir audit --verify called damage. Now it
// leaves numbers without lines, which the next start removes.
func TestASegmentWithoutLinesIsRemovedAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir, 1<<20)
	require.NoError(t, err)
	require.NoError(t, s.makeRoom())
	require.NoError(t, s.closeStore())
	for _, n := range []int{3, 7} {
		require.NoError(t, os.WriteFile(binPath(dir, n), []byte("numbers"), 0o600))
	}
	require.NoError(t, os.WriteFile(dir+"/notes.bin", nil, 0o600))
	found, err := Verify(dir)
	require.NoError(t, err)
	require.Empty(t, found.Faults)
	s, err = openStore(dir, 1<<20)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.closeStore()) }()
	for _, n := range []int{3, 7} {
		require.NoFileExists(t, binPath(dir, n))
	}
	require.FileExists(t, binPath(dir, 1))
	require.FileExists(t, dir+"/notes.bin")
}
