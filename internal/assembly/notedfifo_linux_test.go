package assembly

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding 15a.11: a pipe in the place of a file of a run's folder held the list of all runs for ever.
func TestAPipeInAFolderNotesNoBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, brokerFile), 0o600))
	require.Empty(t, NotedBroker(dir))
}
