package compare

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/config"
)

func TestAFolderStandsForItsComparisons(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"set/b[1]/compare.yaml", "set/a/compare.yaml", "set/a/deep/compare.yaml", "set/page/README.md", "set/odd/compare.yaml/x", "one/x/compare.yaml", "file.yaml"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	in := func(names ...string) (out []string) {
		for _, name := range names {
			out = append(out, filepath.Join(dir, name))
		}
		return out
	}
	for _, c := range []struct {
		paths, files []string
		several      bool
	}{
		{in("file.yaml"), in("file.yaml"), false},
		{in("missing.yaml"), in("missing.yaml"), false},
		{in("set/a"), in("set/a/compare.yaml"), false},
		{in("set"), in("set/a/compare.yaml", "set/b[1]/compare.yaml"), true},
		{in("one"), in("one/x/compare.yaml"), true},
		{in("set/a", "file.yaml"), in("set/a/compare.yaml", "file.yaml"), true},
		{in("set", "one"), in("set/a/compare.yaml", "set/b[1]/compare.yaml", "one/x/compare.yaml"), true},
	} {
		files, several, err := FindFiles(c.paths)
		require.NoError(t, err)
		require.Equal(t, c.files, files)
		require.Equal(t, c.several, several, c.paths)
	}
	_, _, err := FindFiles(in("set/page", "set/odd"))
	var invalid *config.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.ErrorContains(t, err, filepath.Join(dir, "set/page")+": neither this folder nor a folder in it has a compare.yaml")
	require.ErrorContains(t, err, filepath.Join(dir, "set/odd")+": neither")
}
