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
	require.Nil(t, f.FactsOf("g000037-a0-0", 0))
	for n := 38; n <= 40; n++ {
		facts := f.FactsOf(fmt.Sprintf("g%06d-a0-0", n), 0)
		require.NotNil(t, facts)
		require.Equal(t, fmt.Sprintf("q%d", n), facts.Question)
	}
}

// Finding 1 of the eighth reader: a page that nobody looks at for a while misses no line of the segments that were written meanwhile, the
// end of the segment among them that was the newest at the last look.
func TestAPageThatWasNotLookedAtMissesNoEntry(t *testing.T) {
	t.Parallel()
	for _, begun := range []int{1, 3} {
		f := newArchive(t.TempDir())
		require.NoError(t, os.MkdirAll(f.dir, 0o755))
		written := 0
		add := func(segment int) {
			path := filepath.Join(f.dir, fmt.Sprintf("%06d.jsonl", segment))
			file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			require.NoError(t, err)
			_, err = fmt.Fprintf(file, `{"id":"g%06d-a0-0","seq":%[1]d,"step":1,"fate":"%[2]s"}`+"\n", written, archive.FateTrained)
			require.NoError(t, err)
			require.NoError(t, file.Close())
			written++
		}
		for n := 1; n <= begun; n++ {
			add(n)
		}
		require.NoError(t, f.refreshEntries())
		for n := begun; n <= begun+5; n++ {
			add(n)
			add(n)
		}
		require.NoError(t, f.refreshEntries())
		require.NoError(t, f.refreshEntries())
		require.Len(t, f.all, written)
	}
}
