package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each example has its line in docs/recipes.md, and each line its example.
func TestEachExampleHasARecipe(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(filepath.Join(root(t), "examples"))
	require.NoError(t, err)
	want := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) == ".yaml" {
			want[e.Name()] = true
		}
	}
	told := map[string]bool{}
	for line := range strings.Lines(page(t, "docs/recipes.md")) {
		if _, after, ok := strings.Cut(line, "- [`"); ok {
			name, _, _ := strings.Cut(after, "`")
			name, _, _ = strings.Cut(name, "/") // a further configuration of an example
			told[name] = true
		}
	}
	require.Equal(t, want, told)
}
