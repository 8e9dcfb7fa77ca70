package weights

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// watched is a store that counts reads, and fails them where it is told to.
type watched struct {
	shardStore
	reads *atomic.Int64
	fail  func(hash string, to sink) error // may be nil
}

func (c watched) readShard(ctx context.Context, s schemas.Shard, to sink) error {
	c.reads.Add(1)
	if c.fail != nil {
		if err := c.fail(s.Hash, to); err != nil {
			return err
		}
	}
	return c.shardStore.readShard(ctx, s, to)
}

// read is the contents of files.
func read(t *testing.T, paths []string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		out = append(out, data)
	}
	return out
}

func listed(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestFilesFollowVersionsWholeAndAsDeltas(t *testing.T) {
	for name, every := range map[string]int{"whole": 1, "deltas": 4} {
		t.Run(name, func(t *testing.T) {
			stores(t, func(f *fixture, config Config) {
				t := f.t
				config.BaseEvery = every
				w, follower := newClient(t, f.run, config), newClient(t, f.attach(t), config)
				dir := filepath.Join(t.TempDir(), "files")
				for v := range int64(7) {
					m, blobs := weightsOf(v, 2)
					require.NoError(t, w.Publish(f.ctx, m, blobs))
					stored, err := f.run.LatestManifest(f.ctx)
					require.NoError(t, err)
					paths, err := follower.Files(f.ctx, stored, dir)
					require.NoError(t, err)
					require.Equal(t, wholeOf(v), read(t, paths))
					require.Len(t, listed(t, dir), 2, "nothing else is kept")
					late, err := newClient(t, f.run, config).Files(f.ctx, stored, filepath.Join(t.TempDir(), "late"))
					require.NoError(t, err)
					require.Equal(t, wholeOf(v), read(t, late))
				}
			})
		})
	}
}

// Invariant: every file was verified against the manifest.
func TestEveryFileWasVerifiedAgainstTheManifest(t *testing.T) {
	f := newFixture(t, true)
	w := newClient(t, f.run, DefaultConfig())
	m, blobs := weightsOf(3, 3)
	require.NoError(t, w.Publish(f.ctx, m, blobs))
	reads := new(atomic.Int64)
	w.store = watched{shardStore: w.store, reads: reads}
	dir := filepath.Join(t.TempDir(), "files")
	paths, err := w.Files(f.ctx, m, dir)
	require.NoError(t, err)
	require.EqualValues(t, 3, reads.Load())
	want := read(t, paths)

	// What is there is not read again, by another process neither; what was changed, cut or left half written is.
	for range 2 {
		_, err = w.Files(f.ctx, m, dir)
		require.NoError(t, err)
	}
	w = newClient(t, f.attach(t), DefaultConfig())
	w.store = watched{shardStore: w.store, reads: reads}
	_, err = w.Files(f.ctx, m, dir)
	require.NoError(t, err)
	require.EqualValues(t, 3, reads.Load())
	changed := bytes.Clone(want[0])
	changed[100]++
	require.NoError(t, os.WriteFile(paths[0], changed, 0o600))
	require.NoError(t, os.Truncate(paths[1], 7))
	require.NoError(t, os.WriteFile(filepath.Join(dir, tmpPrefix+"half"), changed, 0o600))
	_, err = w.Files(f.ctx, m, dir)
	require.NoError(t, err)
	require.EqualValues(t, 5, reads.Load())
	require.Equal(t, want, read(t, paths))
	require.Len(t, listed(t, dir), 3)
}

// What cannot be brought leaves the version before as it is, and no file under a name that it does not deserve.
func TestFilesThatCannotBeBroughtLeaveTheVersionBefore(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		w := newClient(t, f.run, config)
		before, blobs := weightsOf(0, 2)
		require.NoError(t, w.Publish(f.ctx, before, blobs))
		dir := filepath.Join(t.TempDir(), "files")
		paths, err := w.Files(f.ctx, before, dir)
		require.NoError(t, err)
		want := read(t, paths)
		next, blobs := weightsOf(1, 2)
		require.NoError(t, w.Publish(f.ctx, next, blobs))
		// So that a folder's shards are copied, not linked.
		inner, reads := w.store, new(atomic.Int64)

		for name, c := range map[string]struct {
			fail func(hash string, to sink) error
			want error
		}{
			"the disk is full": {func(_ string, to sink) error {
				_, _ = to.Write(make([]byte, 100))
				return &os.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}
			}, syscall.ENOSPC},
			"another shard's bytes": {func(_ string, to sink) error {
				_, err := to.Write([]byte("more"))
				return err
			}, streams.ErrCorruptShard},
			"the shard is gone": {func(string, sink) error { return streams.ErrNoShard }, streams.ErrNoShard},
		} {
			store := watched{shardStore: appending{inner}, reads: reads}
			store.fail = func(hash string, to sink) error {
				if hash == next.Shards[1].Hash {
					return c.fail(hash, to)
				}
				return nil
			}
			w.store = store
			_, err := w.Files(f.ctx, next, dir)
			require.ErrorIs(t, err, c.want, name)
			require.ErrorContains(t, err, "load version 1", name)
			require.Equal(t, want, read(t, paths), name)
			require.NoFileExists(t, filepath.Join(dir, next.Shards[1].Hash), name)
		}
		w.store = inner
		paths, err = w.Files(f.ctx, next, dir)
		require.NoError(t, err)
		require.Equal(t, wholeOf(1), read(t, paths))

		require.NoError(t, w.store.removeShard(f.ctx, before.Shards[0].Hash))
		_, err = w.Files(f.ctx, before, filepath.Join(t.TempDir(), "elsewhere"))
		require.ErrorIs(t, err, streams.ErrNoShard)
	})
}

// appending is a store whose shards come after what the sink has already.
type appending struct{ shardStore }

func (a appending) readShard(ctx context.Context, s schemas.Shard, to sink) error {
	return a.shardStore.readShard(ctx, s, noRestart{to})
}

type noRestart struct{ sink }

func (noRestart) restartShard() error { return nil }

// A delta whose base is not kept any more is still put on the base's files where they are there.
func TestADeltaOnAFileNeedsNoKeptBase(t *testing.T) {
	f := newFixture(t, true)
	config := DefaultConfig()
	config.BaseEvery = 8
	w, follower := newClient(t, f.run, config), newClient(t, f.attach(t), config)
	dir := filepath.Join(t.TempDir(), "files")
	for v := range int64(3) {
		m, blobs := weightsOf(v, 1)
		require.NoError(t, w.Publish(f.ctx, m, blobs))
		if v < 2 {
			stored, err := f.run.LatestManifest(f.ctx)
			require.NoError(t, err)
			_, err = follower.Files(f.ctx, stored, dir)
			require.NoError(t, err)
		}
	}
	whole, err := f.run.Manifest(f.ctx, 0)
	require.NoError(t, err)
	require.NoError(t, w.store.removeShard(f.ctx, whole.Shards[0].Hash))
	latest, err := f.run.LatestManifest(f.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, latest.Base)
	paths, err := follower.Files(f.ctx, latest, dir)
	require.NoError(t, err)
	require.Equal(t, wholeOf(2)[:1], read(t, paths))
	_, err = follower.Files(f.ctx, latest, filepath.Join(t.TempDir(), "late"))
	require.ErrorIs(t, err, streams.ErrNoShard)
}

// changing is a file that somebody writes to: each time that it is read it holds something else.
type changing struct {
	Blob
	reads atomic.Int64
}

func (c *changing) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.Blob.ReadAt(p, at)
	if n > 0 && at == 0 {
		p[0] += byte(c.reads.Add(1))
	}
	return n, err
}

// A shard that changes between its hash and its way to the store is never stored under that hash.
func TestAShardThatChangesWhileItIsPublishedIsRefused(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		w := newClient(t, f.run, config)
		whole, blobs := weightsOf(0, 1)
		m := *whole
		m.Shards = []schemas.Shard{{Encoding: schemas.EncodingSafetensors}}
		blob := &changing{Blob: Bytes(blobs[whole.Shards[0].Hash])}
		err := w.PublishFrom(f.ctx, &m, func(int) (Blob, error) { return blob, nil })
		if config.Dir == "" {
			require.ErrorIs(t, err, streams.ErrCorruptShard)
			present, err := w.store.listShards(f.ctx)
			require.NoError(t, err)
			require.Empty(t, present)
			_, err = f.run.LatestManifest(f.ctx)
			require.ErrorIs(t, err, streams.ErrNoWeights)
			return
		}
		// A folder's shard is named by what lies in it, whatever was read before.
		require.NoError(t, err)
		_, err = newClient(t, f.attach(t), config).Load(f.ctx, &m)
		require.NoError(t, err)
		_, err = w.store.putShard(f.ctx, schemas.ContentHash([]byte("another")), blob)
		require.ErrorIs(t, err, streams.ErrCorruptShard)
		require.Len(t, listed(t, config.Dir), 1)
	})
}

// A shard that is a file on the disk of the shared folder takes no room there, nor at a reader on the same disk.
func TestFilesOnOneDiskAreLinked(t *testing.T) {
	f := newFixture(t, false)
	home := t.TempDir()
	config := Config{Dir: filepath.Join(home, "shards"), BaseEvery: 1}
	w := newClient(t, f.run, config)
	whole, blobs := weightsOf(0, 1)
	exported := filepath.Join(home, "model.safetensors")
	require.NoError(t, os.WriteFile(exported, blobs[whole.Shards[0].Hash], 0o600))
	m := *whole
	m.Shards = []schemas.Shard{{Encoding: schemas.EncodingSafetensors}}
	require.NoError(t, w.PublishFrom(f.ctx, &m, FileSource([]string{exported})))
	require.Equal(t, whole.Shards, m.Shards)
	paths, err := w.Files(f.ctx, &m, filepath.Join(home, "files"))
	require.NoError(t, err)
	first, err := os.Stat(exported)
	require.NoError(t, err)
	for _, path := range append(paths, filepath.Join(config.Dir, m.Shards[0].Hash)) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(first, info), path)
	}
	require.NoError(t, w.store.removeShard(f.ctx, m.Shards[0].Hash))
	require.NoError(t, os.Remove(exported))
	require.Equal(t, wholeOf(0)[:1], read(t, paths))
}

// Deltas that find no room on the disk make a whole version.
func TestNoRoomForDeltasMakesAWholeVersion(t *testing.T) {
	f := newFixture(t, true)
	config := DefaultConfig()
	config.BaseEvery = 8
	w := newClient(t, f.run, config)
	spool := t.TempDir()
	w.publisher.SpoolIn(spool)
	for v := range int64(3) {
		m, blobs := weightsOf(v, 1)
		if v == 2 {
			w.publisher.SpoolIn(filepath.Join(spool, "not there"))
		}
		require.NoError(t, w.Publish(f.ctx, m, blobs))
		stored, err := f.run.LatestManifest(f.ctx)
		require.NoError(t, err)
		require.Equal(t, map[int64]int64{0: -1, 1: 0, 2: -1}[v], stored.Base)
		require.Empty(t, listed(t, spool))
	}
}

// A shard that ends before its time, as a file that is cut while it is read, is no shard.
func TestABlobThatIsCutIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	require.NoError(t, os.WriteFile(path, make([]byte, 2*pieceBytes), 0o600))
	blob, err := OpenBlob(path)
	require.NoError(t, err)
	defer blob.Close()
	require.NoError(t, os.Truncate(path, 100))
	_, err = hashOf(t.Context(), blob)
	require.Error(t, err)
	_, err = folderShards{t.TempDir()}.putShard(t.Context(), "", blob)
	require.Error(t, err)
	ended, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	_, err = hashOf(ended, Bytes(make([]byte, 10)))
	require.ErrorIs(t, err, over)
}
