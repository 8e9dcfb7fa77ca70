package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFileIsHeldByOneOpenerAtATime(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the system has no advisory locks")
	}
	path := filepath.Join(t.TempDir(), "lock")
	held := errors.New("somebody has it")
	unlock, err := Hold(path, held)
	require.NoError(t, err)
	_, err = Hold(path, held)
	require.ErrorIs(t, err, held)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.False(t, HoldOpen(f))
	require.NoError(t, unlock())
	require.True(t, HoldOpen(f))
	_, err = Hold(filepath.Join(path, "below a file"), held)
	require.Error(t, err)
	require.NotErrorIs(t, err, held)
}
