package trainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// Finding 14.1: a second run of the same name, in another folder, took the archive of the first for its own, removed its segments, and was
// exported and trained on from the log together with it.
func TestTheArchiveOfAnotherRunOfTheSameNameIsRefused(t *testing.T) {
	t.Parallel()
	kept := messages.Folder{Dir: t.TempDir()}
	made := time.Unix(1700000000, 0).UTC()
	runIn := func(dir string) error {
		w := newWorld(vocab)
		made = made.Add(time.Hour)
		w.created = made
		cfg := testConfig(dir)
		cfg.Archive.Messages.Bytes, cfg.Archive.Messages.Dir = 1<<30, kept.Dir
		return Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}})
	}
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, runIn(first))
	before := keptMessages(t, kept)
	require.NotEmpty(t, before)
	err := runIn(second)
	require.ErrorIs(t, err, messages.ErrOtherRun)
	require.ErrorContains(t, err, "run.name")
	require.ErrorContains(t, err, kept.Dir)
	require.Equal(t, before, keptMessages(t, kept))
	// A run that was restored without its id goes on with its archive once it is told to.
	owner := func(dir string) string { return messages.OwnerFile(filepath.Join(dir, archive.Folder)) }
	id, err := os.ReadFile(owner(first))
	require.NoError(t, err)
	require.ErrorContains(t, runIn(second), "write "+strings.TrimSpace(string(id))+" to "+owner(second))
	require.NoError(t, os.WriteFile(owner(second), id, 0o600))
	require.NoError(t, runIn(second))
	require.Greater(t, len(keptMessagesOfAll(t, kept)), len(before))
}

// keptMessagesOfAll are the messages of every stream of an archive.
func keptMessagesOfAll(t *testing.T, store messages.Store) (out [][]byte) {
	t.Helper()
	for m, err := range messages.All(store) {
		require.NoError(t, err)
		out = append(out, m.Data)
	}
	return out
}
