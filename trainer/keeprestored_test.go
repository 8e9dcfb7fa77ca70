package trainer

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// copyWorld copies a broker as it is on its disk.
func copyWorld(w *world) *world {
	c := newWorld(w.vocab)
	c.messages, c.tickets, c.purged, c.latest, c.newest = slices.Clone(w.messages), slices.Clone(w.tickets), w.purged, w.latest, w.newest
	c.acked, c.issued, c.rejected = maps.Clone(w.acked), maps.Clone(w.issued), maps.Clone(w.rejected)
	c.weights, c.names, c.control = maps.Clone(w.weights), maps.Clone(w.names), w.control
	return c
}

// A run and its broker were restored from yesterday, and an archive elsewhere was not: it had messages of the sequences that came next, so that
// the messages which took them were purged unkept, and trained on though the archive is required.
func TestARunThatIsRestoredBesideANewerArchiveKeepsItsMessages(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"trainer", "role"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			keepRestored(t, by)
		})
	}
}

func keepRestored(t *testing.T, by string) {
	kept := messages.Folder{Dir: t.TempDir()}
	trainTo := func(dir string, w *world, steps int64) {
		cfg := testConfig(dir)
		cfg.Steps, cfg.Archive.Required = steps, true
		cfg.Archive.Messages.Bytes, cfg.Archive.Messages.Dir, cfg.Archive.Messages.By = 1<<30, kept.Dir, by
		w.addArchive(t).folder = kept
		train(t, cfg, w)
	}
	live, w := filepath.Join(t.TempDir(), "live"), newWorld(vocab)
	trainTo(live, w, 2)
	yesterday, broker := filepath.Join(t.TempDir(), "yesterday"), copyWorld(w)
	require.NoError(t, os.CopyFS(yesterday, os.DirFS(live)))
	trainTo(live, w, 8)
	for restored := int64(1); restored <= 2; restored++ {
		dir, w := filepath.Join(t.TempDir(), "restored"), copyWorld(broker)
		require.NoError(t, os.CopyFS(dir, os.DirFS(yesterday)))
		w.backwards = restored == 1 // what comes is other than before
		trainTo(dir, w, 8-restored)
		require.Greater(t, w.purged, broker.purged)
		have := map[uint64][]byte{}
		for m, err := range messages.All(kept) {
			require.NoError(t, err)
			if m.Losses == restored {
				have[m.Sequence] = m.Data
			}
		}
		for _, m := range w.messages[broker.purged:w.purged] {
			data, err := schemas.Marshal(m.Trajectory)
			require.NoError(t, err)
			require.Equal(t, data, have[m.Sequence], m.Sequence)
		}
		found, err := messages.Verify(kept)
		require.NoError(t, err)
		require.Empty(t, found.Damage)
	}
}
