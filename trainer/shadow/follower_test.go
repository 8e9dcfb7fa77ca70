package shadow

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writer is the store of a run.
type writer struct {
	t     *testing.T
	store *checkpoint.Store
	cfg   checkpoint.Config
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	w := &writer{t: t, cfg: checkpoint.Config{Dir: t.TempDir(), Keep: 9, Messages: 1, Batches: -1}}
	w.open()
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	return w
}

func (w *writer) open() {
	w.t.Helper()
	var err error
	w.store, err = checkpoint.Open(w.cfg)
	require.NoError(w.t, err)
}

// save saves a step whose batch has the trajectory of an id.
func (w *writer) save(step int64, id string) *checkpoint.Checkpoint {
	w.t.Helper()
	c := w.checkpointOf(step)
	c.Batch = []schemas.Delivery{{Sequence: uint64(step), Trajectory: &schemas.Trajectory{ID: id}}}
	require.NoError(w.t, w.store.Save(w.t.Context(), c))
	return c
}

func (w *writer) checkpointOf(step int64) *checkpoint.Checkpoint {
	return &checkpoint.Checkpoint{
		State: checkpoint.State{Run: "run", Step: step}, Record: checkpoint.Record{Step: step},
		Policy: enginetest.BigramOf(gpu.Config{VocabSize: 4}),
	}
}

// goBack has the run go on from its newest checkpoint but those that are removed.
func (w *writer) goBack(removed ...int64) {
	w.t.Helper()
	require.NoError(w.t, w.store.Close())
	for _, step := range removed {
		require.NoError(w.t, os.RemoveAll(checkpoint.StepDir(w.cfg.Dir, step)))
	}
	w.open()
	_, _, err := w.store.Load()
	require.NoError(w.t, err)
}

func (w *writer) follow(step int64) *follower {
	return &follower{dir: w.cfg.Dir, once: true, log: slog.New(slog.DiscardHandler), step: step}
}

func requireNext(t *testing.T, f *follower, want int64) {
	t.Helper()
	r, err := f.nextLine(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, r.Step)
}

func requireNoMore(t *testing.T, f *follower) {
	t.Helper()
	for range 2 {
		_, err := f.nextLine(t.Context())
		require.ErrorIs(t, err, errNoMore)
	}
}

// A record is followed line by line while it grows, while its last line is written anew, and over a run that went back.
func TestTheRecordOfARunIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	requireNoMore(t, w.follow(0))
	w.save(0, "none")
	w.save(1, "a")
	f := w.follow(0)
	requireNext(t, f, 1)
	requireNoMore(t, f)

	again := w.checkpointOf(1)
	again.Record.Rejected = []checkpoint.RecordRejection{{ID: "late", Reason: schemas.ReasonStale}}
	again.Record.Batch = &checkpoint.KeptBatch{SHA256: f.batch}
	require.NoError(t, w.store.Renew(t.Context(), again))
	requireNoMore(t, f)
	w.save(2, "b")
	w.save(3, "c")
	requireNext(t, f, 2)
	requireNext(t, f, 3)
	requireNoMore(t, f)
	require.Zero(t, f.remade)

	// The run goes back behind what was followed, and makes step 3 of another trajectory.
	w.goBack(2, 3)
	requireNoMore(t, f)
	w.save(2, "b")
	requireNoMore(t, f)
	w.save(3, "other")
	requireNoMore(t, f)
	require.EqualValues(t, 1, f.remade)
	w.save(4, "d")
	requireNext(t, f, 4)
	require.EqualValues(t, 1, f.remade)
}

// A record that begins with a later step, as when the lines before were taken away, is followed from there.
func TestLinesThatAreMissingArePassedOver(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	w.save(0, "none")
	w.save(5, "e")
	f := w.follow(1)
	requireNext(t, f, 5)
}

// A damaged line is an error once nothing is written any more; a line that is being written is waited for.
func TestADamagedLineOfTheRecordIsNamed(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	w.save(0, "none")
	w.save(1, "a")
	path := filepath.Join(w.cfg.Dir, checkpoint.RecordFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, whole[:len(whole)-9], 0o600))
	requireNoMore(t, w.follow(0))

	changed := append([]byte{}, whole...)
	changed[len(changed)-200] ^= 1
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	f := w.follow(0)
	f.once = false
	_, err = f.nextLine(t.Context())
	require.ErrorContains(t, err, checkpoint.RecordFile)
}

func TestTheWaitForAStepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	f := w.follow(0)
	f.once = false
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.nextLine(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
