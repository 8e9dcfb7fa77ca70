package runfolder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/archive"
)

// What the archive has removed to make room is forgotten: a page that is open for long holds no more than the disk does.
func TestEntriesThatWereRemovedAreForgotten(t *testing.T) {
	t.Parallel()
	f := newArchive(t.TempDir())
	require.NoError(t, os.MkdirAll(f.dir, 0o755))
	segment := func(n int) string { return filepath.Join(f.dir, fmt.Sprintf("%06d.jsonl", n)) }
	for n := 1; n <= 40; n++ {
		text := fmt.Sprintf(`{"id":"g%06d-a0-0","seq":%[1]d,"step":1,"fate":"%[2]s","question":"q%[1]d"}`+"\n", n, archive.FateTrained)
		require.NoError(t, os.WriteFile(segment(n), []byte(text), 0o600))
		if n > 3 {
			require.NoError(t, os.Remove(segment(n-3)))
		}
		require.NoError(t, f.refreshEntries())
		require.LessOrEqual(t, len(f.all), 3)
		require.LessOrEqual(t, len(f.offsets), 3)
		require.LessOrEqual(t, len(f.texts), 3+2)
	}
	require.Nil(t, f.FactsOf("g000037-a0-0"))
	for n := 38; n <= 40; n++ {
		facts := f.FactsOf(fmt.Sprintf("g%06d-a0-0", n))
		require.NotNil(t, facts)
		require.Equal(t, fmt.Sprintf("q%d", n), facts.Question)
	}
}
