package runfolder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBuildIsReadFromTheConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Build{
		Build{Version: "v1.2.0", Commit: "abc123"}.Line() + "run: {}\n": {Version: "v1.2.0", Commit: "abc123"},
		"run: {}\n": {},
		"":          {},
		"# weir\n":  {},
	} {
		f := Open(Run{Dir: t.TempDir()})
		require.NoError(t, os.WriteFile(filepath.Join(f.Dir, ConfigFile), []byte(text), 0o600))
		require.Equal(t, want, f.Build(), text)
	}
	require.Zero(t, Open(Run{Dir: t.TempDir()}).Build(), "no configuration")
}
