package assembly

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/filelock"
)

// A low finding of earlier readers: a fork that was killed left a folder beside the runs for good, whose links kept the bytes of a run that
// was removed.
func TestWhatAKilledForkLeftIsRemovedByTheNext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".side.tmp-1", ".side.tmp-2", ".other.tmp-3", "side"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "checkpoints", "step_000001"), 0o755))
	}
	atWork, err := os.Open(filepath.Join(dir, ".side.tmp-2"))
	require.NoError(t, err)
	defer atWork.Close()
	require.True(t, filelock.HoldOpen(atWork))
	removeHalfForks(dir, "side")
	require.NoDirExists(t, filepath.Join(dir, ".side.tmp-1"))
	for _, name := range []string{".side.tmp-2", ".other.tmp-3", "side"} {
		require.DirExists(t, filepath.Join(dir, name, "checkpoints", "step_000001"), name)
	}
}
