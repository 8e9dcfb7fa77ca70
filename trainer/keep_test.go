package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// keptMessages are the messages of an archive, by sequence.
func keptMessages(t *testing.T, store messages.Store) map[uint64][]byte {
	t.Helper()
	out := map[uint64][]byte{}
	for m, err := range messages.All(store) {
		require.NoError(t, err)
		require.NotContains(t, out, m.Sequence, "kept twice")
		out[m.Sequence] = m.Data
	}
	return out
}

// Invariant: every message that was published is in the archive before it is purged, whatever became of it and wherever the trainer dies.
func TestInvariantEveryMessageIsKeptBeforeItIsPurged(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cfg := testConfig(dir)
			cfg.Eta, cfg.Depth = 2, 2
			cfg.Checkpoint.Messages = 20 // checkpoints are renewed within steps, too
			cfg.Archive.Messages.Bytes, cfg.Archive.Required = 1<<30, seed%2 == 0
			w := newWorld(vocab)
			w.noise, w.flat = true, 3
			store := messages.Folder{Dir: filepath.Join(dir, archive.Folder, "messages")}
			random := rand.New(rand.NewPCG(seed, 1))
			purged := uint64(0)
			w.crash = func(point string) error {
				if random.IntN(60) == 0 {
					return errCrash
				}
				return nil
			}
			train(t, cfg, w)
			require.NotZero(t, w.purged)
			purged = w.purged
			kept := keptMessages(t, store)
			for s := uint64(1); s <= purged; s++ {
				want := w.messages[s-1]
				if want.Closed != nil {
					data, err := schemas.Marshal(want.Closed)
					require.NoError(t, err)
					require.Equal(t, data, kept[s])
					continue
				}
				data, err := schemas.Marshal(want.Trajectory)
				require.NoError(t, err)
				require.Equal(t, data, kept[s], "sequence %d", s)
			}
			// The end of the run keeps what no purge has come to.
			last := uint64(0)
			for _, r := range audit(t, cfg, w) {
				for _, g := range r.Groups {
					for _, m := range g.Used() {
						require.Contains(t, kept, m.Sequence)
						last = max(last, m.Sequence)
					}
				}
			}
			require.Greater(t, last, purged)
			verified, err := messages.Verify(store)
			require.NoError(t, err)
			require.Empty(t, verified.Damage)
			require.Empty(t, verified.Notes)
		})
	}
}

// fullStore is a folder on a disk that may be full.
type fullStore struct {
	messages.Folder
	full atomic.Bool
}

var errFull = errors.New("no space left on device")

func (s *fullStore) Put(name string, data []byte) error {
	if s.full.Load() {
		return errFull
	}
	return s.Folder.Put(name, data)
}

// runKeeping trains with an archive in a store, whose disk is full from a step on.
func runKeeping(t *testing.T, cfg Config, w *world, store *fullStore, fullAfter int64, m *Metrics) error {
	t.Helper()
	return Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Messages: store, Metrics: m,
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventStepDone && e.Step == fullAfter {
				store.full.Store(true)
			}
		},
	})
}

// Invariant: where the archive is required, no step trains on a message that was not kept.
func TestInvariantARequiredArchiveIsKeptBeforeTheStep(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Archive.Messages.Bytes, cfg.Archive.Required = 1<<30, true
	w := newWorld(vocab)
	store := &fullStore{Folder: messages.Folder{Dir: t.TempDir()}}
	err := runKeeping(t, cfg, w, store, 3, nil)
	require.ErrorIs(t, err, errFull)
	require.ErrorContains(t, err, "trainer.archive.required")
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, 4, "the three steps before, and the start")
	kept := keptMessages(t, store)
	for _, r := range records {
		for _, g := range r.Groups {
			for _, m := range g.Used() {
				require.Contains(t, kept, m.Sequence)
			}
		}
	}
	// Room again: the run goes on with the same trajectories.
	store.full.Store(false)
	require.NoError(t, runKeeping(t, cfg, w, store, -1, nil))
	audit(t, cfg, w)
	kept = keptMessages(t, store)
	for s := range w.purged {
		require.Contains(t, kept, s+1)
	}
}

// A message that was purged by hand while the trainer had it was not kept: no step trains on it, and its prompt is issued again.
func TestARequiredArchiveRefusesAMessageThatThePurgedStreamLacks(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth = 2, 2
	cfg.Archive.Messages.Bytes, cfg.Archive.Required = 1<<30, true
	w := newWorld(vocab)
	store := &fullStore{Folder: messages.Folder{Dir: t.TempDir()}}
	w.idle = true
	purged := false
	w.crash = func(point string) error {
		if point == "before next" && len(w.messages) == 35 && !purged { // some of a batch have come
			w.purged, purged = uint64(len(w.messages)), true
		}
		return nil
	}
	err := runKeeping(t, cfg, w, store, -1, nil)
	require.ErrorContains(t, err, "left the stream before it was kept")
	require.NoError(t, runKeeping(t, cfg, w, store, -1, nil))
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	kept := keptMessages(t, store)
	for _, r := range records {
		for _, g := range r.Groups {
			for _, m := range g.Used() {
				require.Contains(t, kept, m.Sequence, r.Step)
			}
		}
	}
}

func TestAFullArchiveLetsTheRunGoOnAndIsCounted(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Archive.Messages.Bytes = 1 << 30
	w := newWorld(vocab)
	store := &fullStore{Folder: messages.Folder{Dir: t.TempDir()}}
	require.NoError(t, runKeeping(t, cfg, w, store, 3, nil))
	audit(t, cfg, w)
	before := uint64(len(keptMessages(t, store)))
	require.NotZero(t, before)
	require.Less(t, before, w.purged)
	// Room again: the gap is counted once, and noted.
	missing := w.purged - before
	store.full.Store(false)
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	cfg.Steps += 4
	require.NoError(t, runKeeping(t, cfg, w, store, -1, m))
	require.EqualValues(t, missing, testutil.ToFloat64(m.unkept))
	verified, err := messages.Verify(store)
	require.NoError(t, err)
	require.Empty(t, verified.Damage)
	require.Len(t, verified.Notes, 1)
}

// fullSpool is a folder in which there is no room until it is released.
type fullSpool struct {
	messages.Folder
	room chan struct{}
}

func (s *fullSpool) AwaitRoom(ctx context.Context, _ int64, waits func(error)) error {
	select {
	case <-s.room:
		return nil
	default:
		waits(errors.Join(messages.ErrSpoolFull, errFull))
	}
	select {
	case <-s.room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Finding 14.5: weir status said "running" of a run that waited for its archive's bucket.
func TestARunThatWaitsForItsBucketSaysSo(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Archive.Messages.Bytes, cfg.Archive.Required = 1<<30, true
	store := &fullSpool{messages.Folder{Dir: filepath.Join(cfg.Checkpoint.Dir, archive.Folder, "messages")}, make(chan struct{})}
	said, ended := make(chan schemas.Event, 8), make(chan error, 1)
	w := newWorld(vocab)
	go func() {
		ended <- Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Messages: store,
			Observer: func(e schemas.Event) {
				if e.Type == schemas.EventWaiting {
					said <- e
				}
			},
		})
	}()
	e := <-said
	require.Equal(t, "the run waits until the archive's bucket has taken segments, as trainer.archive.required is set: "+
		"the spool of segments that wait for the bucket is full: no space left on device", e.Message)
	require.EqualValues(t, 1, e.Step)
	close(store.room)
	require.Empty(t, (<-said).Message, "it goes on")
	require.NoError(t, <-ended)
	require.Empty(t, said, "there was room from then on")
	audit(t, cfg, w)
}
