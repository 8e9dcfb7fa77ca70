package assembly

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

// Finding 15a.11: a pipe in the place of a file of a run's folder held the list of all runs for ever.
func TestAPipeInAFolderNotesNoBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, brokerFile), 0o600))
	require.Empty(t, NotedBroker(dir))
}

// Finding 16a.11: a pipe named config.yaml in a stranger's folder kept weir view from ever listening.
func TestAPipeIsNoConfigurationOfARun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), ConfigFile)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, _, err := config.Resolve(builtin.Doors(), config.Sources{Written: path})
	require.ErrorContains(t, err, "no regular file")

	require.NoError(t, os.Remove(path)) // finding 17.2: a large file without any bytes on the disk
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 3<<30))
	_, _, err = config.Resolve(builtin.Doors(), config.Sources{Written: path})
	require.ErrorContains(t, err, "no regular file of at most 16777216 bytes")
}
