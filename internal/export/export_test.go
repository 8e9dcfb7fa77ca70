package export

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/filelock"
	"github.com/weir-rl/weir/internal/runfolder"
)

// A low finding of earlier readers: of two exports into a folder at once some tables were of one, and some of the other.
func TestAFolderTakesOneExportAtATime(t *testing.T) {
	t.Parallel()
	dir, run := t.TempDir(), runfolder.Run{Name: "demo", Dir: t.TempDir(), Checkpoints: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "."+TurnsFile+"-123"), []byte("of an export that was killed"), 0o600))
	write := func() error {
		_, err := Write(context.Background(), runfolder.Open(run), runfolder.Record{Dir: run.Checkpoints}, Options{Dir: dir})
		return err
	}
	other, err := os.Open(dir)
	require.NoError(t, err)
	require.True(t, filelock.HoldOpen(other))
	require.ErrorIs(t, write(), errBusy)
	require.NoFileExists(t, filepath.Join(dir, TurnsFile))
	require.NoError(t, other.Close())
	require.NoError(t, write())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "%v", entries)
}
