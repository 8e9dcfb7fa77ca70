package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

// The list of this very program names each module that it is linked from, with its version and sum, and is the same each time.
func TestTheListIsOfWhatIsLinkedIn(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	first, second := filepath.Join(t.TempDir(), "a.json"), filepath.Join(t.TempDir(), "b.json")
	require.NoError(t, writeList([]string{program, "v1.2.3", first}))
	require.NoError(t, writeList([]string{program, "v1.2.3", second}))
	a, err := os.ReadFile(first)
	require.NoError(t, err)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	require.Equal(t, string(a), string(b))

	var got cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(a), cdx.BOMFileFormatJSON).Decode(&got))
	require.Equal(t, "pkg:golang/github.com/weir-rl/weir@v1.2.3", got.Metadata.Component.PackageURL)
	parts := map[string]cdx.Component{}
	for _, c := range *got.Components {
		parts[c.Name] = c
	}
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.Len(t, parts, len(info.Deps)+1, "the modules and the standard library")
	require.Contains(t, parts, "std")
	for _, m := range info.Deps {
		require.Equal(t, m.Version, parts[m.Path].Version, m.Path)
		require.Equal(t, "pkg:golang/"+m.Path+"@"+m.Version, parts[m.Path].PackageURL)
		require.Len(t, *parts[m.Path].Hashes, 1, m.Path)
	}
	require.Len(t, *(*got.Dependencies)[0].Dependencies, len(parts))
}

func TestAModuleThatIsReplacedIsListedAsWhatReplacesIt(t *testing.T) {
	t.Parallel()
	got := listModules(&debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/b", Version: "v2.0.0"}},
	}}, "v1.2.3")
	require.Equal(t, "pkg:golang/example.org/b@v2.0.0", (*got.Components)[1].PackageURL)
}

func TestAFileThatIsNoProgramIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	require.ErrorContains(t, writeList([]string{path, "v1.2.3", path + ".json"}), path)
	require.NoFileExists(t, path+".json")
	require.ErrorContains(t, writeList(nil), "0 arguments: want a program, its version and the document to write")
}
