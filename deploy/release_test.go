package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/stretchr/testify/require"
)

// What a release is made of is there, by the paths that .goreleaser.yaml has; a release is made by hand, so nothing else would tell.
func TestWhatAReleaseIsMadeOfIsThere(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", ".goreleaser.yaml"))
	require.NoError(t, err)
	release, err := yaml.Parser().Unmarshal(data)
	require.NoError(t, err)
	first := func(section string) map[string]any {
		parts := release[section].([]any)
		require.Len(t, parts, 1, section)
		return parts[0].(map[string]any)
	}
	var paths []string
	add := func(list any) {
		for _, path := range list.([]any) {
			paths = append(paths, path.(string))
		}
	}
	build := first("builds")
	require.Equal(t, []any{"linux", "darwin"}, build["goos"])
	require.Equal(t, []any{"amd64", "arm64"}, build["goarch"])
	require.Equal(t, []any{"CGO_ENABLED=0"}, build["env"], "static")
	paths = append(paths, build["main"].(string))
	add(first("archives")["files"])
	packages := first("nfpms")
	require.Equal(t, []any{"deb", "rpm"}, packages["formats"])
	for _, content := range packages["contents"].([]any) {
		paths = append(paths, content.(map[string]any)["src"].(string))
	}
	image := first("dockers_v2")
	paths = append(paths, image["dockerfile"].(string))
	add(image["extra_files"])
	add(first("sboms")["args"].([]any)[3:4])
	require.Contains(t, paths, "./internal/sbom")
	for _, path := range paths {
		found, err := filepath.Glob(filepath.Join("..", path))
		require.NoError(t, err, path)
		require.NotEmpty(t, found, path)
	}
}
