package archiver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// runIn runs an archiver until stop is called or it fails.
func (b *bench) runIn(store messages.Store, m *Metrics, ready func(error)) (stop func(), ended <-chan error) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	end := make(chan error, 1)
	seated := make(chan struct{})
	go func() {
		end <- Run(ctx, messages.Config{Bytes: 1 << 30}, Deps{
			Stream: b.run, Store: store, Log: slog.New(slog.DiscardHandler), Metrics: m, Ready: ready, After: func(stage string) {
				if stage == "seat" {
					close(seated)
				}
			},
		})
	}()
	select {
	case <-seated:
	case err := <-end:
		require.NoError(b, err)
	}
	b.Cleanup(cancel)
	return cancel, end
}

// awaitKept asks for everything that was published, and returns what the archiver tells once it has kept that.
func (b *bench) awaitKept() *streams.Kept {
	b.Helper()
	r := b.request()
	require.NoError(b, b.run.AskToKeep(b.ctx, r))
	return b.awaitWord(func(k *streams.Kept) bool { return k.UpTo(r) >= r.Sequence })
}

// awaitWord returns the first word of the archiver that is as wanted.
func (b *bench) awaitWord(wanted func(*streams.Kept) bool) (got *streams.Kept) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	require.NoError(b, b.run.FollowKept(ctx, func(k *streams.Kept) {
		if got == nil && wanted(k) {
			got = k
			cancel()
		}
	}))
	require.NotNil(b, got)
	return got
}

func localBench(t *testing.T) *bench {
	return newBench(t, streams.ConnectConfig{URL: streamtest.Start(t).URL()})
}

func newTestMetrics(t *testing.T) *Metrics {
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	return m
}

// An archiver that comes late keeps what is left, names the gap, counts it once, and so does the archiver after it.
func TestAnArchiverThatComesLateNamesTheGap(t *testing.T) {
	t.Parallel()
	b := localBench(t)
	folder := messages.Folder{Dir: t.TempDir()}
	b.publish(5)
	require.NoError(t, b.feed.Purge(b.ctx, 3))
	m := newTestMetrics(t)
	stop, ended := b.runIn(folder, m, nil)
	gap := []streams.Gap{{After: 0, Last: 3}}
	require.Equal(t, gap, b.awaitKept().Gaps)
	require.EqualValues(t, 3, testutil.ToFloat64(m.lost))
	b.publish(2)
	require.Equal(t, gap, b.awaitKept().Gaps)
	require.EqualValues(t, 3, testutil.ToFloat64(m.lost))
	stop()
	require.NoError(t, <-ended)
	b.requireKept(folder, 3, 7)
	verified, err := messages.Verify(folder)
	require.NoError(t, err)
	require.Empty(t, verified.Damage)
	require.Equal(t, []string{"messages 1 to 3 of the stream were purged before they were kept"}, verified.Notes)

	// Nothing is left of what is asked for: a gap at the end, until more comes.
	b.publish(2)
	require.NoError(t, b.feed.Purge(b.ctx, 9))
	stop, ended = b.runIn(folder, nil, nil)
	require.Equal(t, []streams.Gap{{After: 0, Last: 3}, {After: 7, Last: 9}}, b.awaitKept().Gaps)
	b.publish(1)
	require.Equal(t, []streams.Gap{{After: 0, Last: 3}, {After: 7, Last: 9}}, b.awaitKept().Gaps)
	stop()
	require.NoError(t, <-ended)
}

// Of two archivers the newer has the run, with what its own store has; the older ends with the reason.
func TestANewArchiverTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	b := localBench(t)
	first, second := messages.Folder{Dir: t.TempDir()}, messages.Folder{Dir: t.TempDir()}
	b.publish(4)
	_, fenced := b.runIn(first, nil, nil)
	require.Empty(t, b.awaitKept().Gaps)
	stop, ended := b.runIn(second, nil, nil)
	require.ErrorIs(t, <-fenced, streams.ErrArchiveFenced)
	b.publish(2)
	require.EqualValues(t, 2, b.awaitKept().Epoch)
	stop()
	require.NoError(t, <-ended)
	b.requireKept(second, 0, 6) // nothing was purged, so that the new store has everything too
	b.requireKept(first, 0, 4)
}

// A stream that was made anew, or has lost messages, is another: what was kept of the stream before does not count for it.
func TestAStreamThatWasMadeAnewIsKeptFromItsBeginning(t *testing.T) {
	t.Parallel()
	b := localBench(t)
	folder := messages.Folder{Dir: t.TempDir()}
	stop, ended := b.runIn(folder, nil, nil)
	b.publish(4)
	b.awaitKept()
	// The trainer has found that messages were lost, and reads the stream again from where it begins.
	b.losses = 1
	require.Zero(t, b.awaitWord(func(*streams.Kept) bool { return true }).UpTo(b.request()))
	require.Empty(t, b.awaitKept().Gaps)
	// A request of a stream that is gone: nothing of the stream of now is kept for it, and its failure is told.
	gone := b.request()
	gone.Created = gone.Created.Add(-time.Hour)
	require.NoError(t, b.run.AskToKeep(b.ctx, gone))
	k := b.awaitWord(func(k *streams.Kept) bool { return k.Failure != "" })
	require.Contains(t, k.Failure, "recreated")
	require.Zero(t, k.UpTo(gone))
	b.publish(1)
	require.Empty(t, b.awaitKept().Failure)
	stop()
	require.NoError(t, <-ended)
	lives := map[messages.Life]int{}
	for m, err := range messages.All(folder) {
		require.NoError(t, err)
		lives[m.Life]++
	}
	created := b.feed.Identity().Created.UTC()
	require.Equal(t, map[messages.Life]int{{Created: created}: 4, {Created: created, Losses: 1}: 5}, lives)
}

// fullFolder is a folder on a disk that may be full.
type fullFolder struct {
	messages.Folder
	full atomic.Bool
}

var errFull = errors.New("no space left on device")

func (s *fullFolder) Put(name string, data []byte) error {
	if s.full.Load() {
		return errFull
	}
	return s.Folder.Put(name, data)
}

// A full disk is told to the trainer, by /readyz and by a metric; the archiver tries again, and goes on when there is room.
func TestAFullDiskIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	b := localBench(t)
	store := &fullFolder{Folder: messages.Folder{Dir: t.TempDir()}}
	store.full.Store(true)
	m, ready := newTestMetrics(t), make(chan error, 100)
	stop, ended := b.runIn(store, m, func(err error) { ready <- err })
	require.NoError(t, <-ready)
	b.publish(3)
	r := b.request()
	require.NoError(t, b.run.AskToKeep(b.ctx, r))
	k := b.awaitWord(func(k *streams.Kept) bool { return k.Failure != "" })
	require.Contains(t, k.Failure, errFull.Error())
	require.Zero(t, k.UpTo(r))
	require.ErrorIs(t, <-ready, errFull)
	require.NotZero(t, testutil.ToFloat64(m.failures))
	require.EqualValues(t, 3, testutil.ToFloat64(m.behind))
	store.full.Store(false)
	k = b.awaitWord(func(k *streams.Kept) bool { return k.UpTo(r) == 3 })
	require.Empty(t, k.Failure)
	require.Empty(t, k.Gaps)
	require.NoError(t, <-ready)
	stop()
	require.NoError(t, <-ended)
	require.Zero(t, testutil.ToFloat64(m.behind))
	b.requireKept(store.Folder, 0, 3)
}

// A folder with the messages of another run is refused before anything is written, and a folder has one writer on a machine.
func TestTheFolderOfAnotherRunIsRefused(t *testing.T) {
	t.Parallel()
	b := localBench(t)
	folder := messages.Folder{Dir: t.TempDir()}
	b.publish(1)
	life := messages.Life{Created: time.Unix(9, 0).UTC()}
	other, err := messages.Open(folder, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "another"}, life, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = other.Keep(b.ctx, source{b.run, b.request(), func(string) {}}, 1)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	before, err := folder.List()
	require.NoError(t, err)
	_, ended := b.runIn(folder, nil, nil)
	require.NoError(t, b.run.AskToKeep(b.ctx, b.request()))
	err = <-ended
	require.ErrorIs(t, err, messages.ErrOtherRun)
	require.ErrorContains(t, err, `is of run "another", this is run "test"`)
	after, err := folder.List()
	require.NoError(t, err)
	require.Equal(t, before, after)

	unlock, err := folder.Lock()
	require.NoError(t, err)
	_, err = folder.Lock()
	require.ErrorIs(t, err, messages.ErrLocked)
	require.NoError(t, unlock())
	unlock, err = folder.Lock()
	require.NoError(t, err)
	require.NoError(t, unlock())
}

// A run and its broker were restored from an older copy than the archive of the role: the role told the trainer that it had kept messages of
// sequences at which others came.
func TestAnArchiveThatIsAheadOfItsStreamTellsThatNothingIsKept(t *testing.T) {
	t.Parallel()
	for _, losses := range []int64{0, 1} {
		b, folder := localBench(t), messages.Folder{Dir: t.TempDir()}
		b.publish(4)
		life := messages.Life{Created: b.feed.Identity().Created.UTC(), Losses: losses}
		a, err := messages.Open(folder, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "test"}, life, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		_, err = a.Keep(b.ctx, later{}, 9)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		stop, ended := b.runIn(folder, nil, nil)
		r := b.request()
		require.NoError(t, b.run.AskToKeep(b.ctx, r))
		k := b.awaitWord(func(k *streams.Kept) bool { return k.Failure != "" || k.UpTo(r) > 0 })
		require.Zero(t, k.UpTo(r), losses)
		require.Contains(t, k.Failure, "the archive has messages that the stream has lost", losses)
		require.NotNil(t, k.Ahead, losses)
		require.Equal(t, losses, *k.Ahead)
		stop()
		require.NoError(t, <-ended)
		for m, err := range messages.All(folder) {
			require.NoError(t, err)
			require.EqualValues(t, 9, m.Sequence, losses)
		}
	}
}

// later is a stream of a time that was not restored.
type later struct{}

// ReadStored implements messages.Source.
func (later) ReadStored(context.Context, uint64, uint64, int) (messages.Span, []messages.Message, error) {
	return messages.Span{After: 0, Last: 9}, []messages.Message{{Sequence: 9, At: time.Unix(1700000000, 0), Data: []byte("x")}}, nil
}

// Finding 16b.3: segments that were moved while the role ran, as its failure said, were told as kept, and so was what came after them.
func TestSegmentsThatAreMovedAreNotToldAsKept(t *testing.T) {
	b := localBench(t)
	folder := messages.Folder{Dir: t.TempDir()}
	b.publish(4)
	a, err := messages.Open(folder, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "test"},
		messages.Life{Created: b.feed.Identity().Created.UTC()}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = a.Keep(t.Context(), later{}, 9)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	stop, ended := b.runIn(folder, nil, nil)
	r := b.request()
	require.NoError(t, b.run.AskToKeep(b.ctx, r))
	b.awaitWord(func(k *streams.Kept) bool { return k.Failure != "" })
	all, err := filepath.Glob(filepath.Join(folder.Dir, "*.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	elsewhere := t.TempDir()
	for _, path := range all {
		require.NoError(t, os.Rename(path, filepath.Join(elsewhere, filepath.Base(path))))
	}
	require.NoError(t, b.run.AskToKeep(b.ctx, r))
	told := b.awaitWord(func(k *streams.Kept) bool { return k.Failure == "" && k.UpTo(r) > 0 })
	require.EqualValues(t, 4, told.UpTo(r))
	require.Empty(t, told.Gaps)
	kept := 0
	for _, err := range messages.All(folder) {
		require.NoError(t, err)
		kept++
	}
	require.Equal(t, 4, kept)
	stop()
	require.NoError(t, <-ended)
}

// Finding 16b.10: the same in a bucket, whose spool notes what it has sent.
func TestObjectsThatAreMovedAreNotToldAsKept(t *testing.T) {
	b := localBench(t)
	spoolDir, bucketDir := t.TempDir(), t.TempDir()
	b.publish(4)
	open := func() *messages.Spool {
		s, err := messages.OpenSpool(messages.Folder{Dir: spoolDir}, messages.Folder{Dir: bucketDir},
			messages.SpoolConfig{Bytes: 1 << 20}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return s
	}
	s := open()
	a, err := messages.Open(s, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "test"},
		messages.Life{Created: b.feed.Identity().Created.UTC()}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = a.Keep(t.Context(), later{}, 9)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, s.Close())
	objects, err := filepath.Glob(filepath.Join(bucketDir, "*.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	elsewhere := t.TempDir()
	for _, path := range objects {
		require.NoError(t, os.Rename(path, filepath.Join(elsewhere, filepath.Base(path))))
	}

	s = open()
	stop, ended := b.runIn(s, nil, nil)
	r := b.request()
	require.NoError(t, b.run.AskToKeep(b.ctx, r))
	told := b.awaitWord(func(k *streams.Kept) bool { return k.UpTo(r) > 0 })
	require.EqualValues(t, 4, told.UpTo(r))
	require.Empty(t, told.Gaps)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, s.Close())
	kept := 0
	for _, err := range messages.All(messages.Folder{Dir: bucketDir}) {
		require.NoError(t, err)
		kept++
	}
	require.Equal(t, 4, kept)
}
