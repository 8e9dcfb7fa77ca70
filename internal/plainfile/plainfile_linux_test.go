package plainfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/plainfile"
)

func TestARegularFileIsOpenedAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("hello"), 0o600))
	require.NoError(t, os.Symlink(at("file"), at("link")))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", at("device")))
	for _, name := range []string{"file", "link"} {
		data, err := plainfile.ReadFile(at(name), 4)
		require.NoError(t, err)
		require.Equal(t, "hell", string(data))
	}
	for _, name := range []string{"pipe", "device", "."} {
		_, err := plainfile.Open(at(name))
		require.ErrorIs(t, err, plainfile.ErrNotPlain, name)
	}
	_, err := plainfile.Open(at("absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
