package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// weightsOf makes a version's whole shards: a few kilobytes that differ a little from version to version.
func weightsOf(version int64, shards int) (*schemas.Manifest, map[string][]byte) {
	m := &schemas.Manifest{
		Run: "run-1", Version: version, Base: schemas.NoBase, Config: []byte("{}"), ConfigHash: sha([]byte("{}")),
		TokenizerHash: sha(nil), DType: "bfloat16", PublishedAt: time.Unix(version, 0).UTC(),
	}
	blobs := make(map[string][]byte)
	for i := range shards {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		data := make([]byte, 4096)
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		for v := range version {
			data[(int(v)*37+i)%len(data)]++
		}
		m.Shards = append(m.Shards, schemas.Shard{
			Hash: sha(data), Size: int64(len(data)), Encoding: schemas.EncodingSafetensors, FullHash: sha(data),
		})
		blobs[sha(data)] = data
	}
	return m, blobs
}

// wholeOf is the bytes of a version of two shards.
func wholeOf(version int64) [][]byte {
	m, blobs := weightsOf(version, 2)
	var whole [][]byte
	for _, s := range m.Shards {
		whole = append(whole, blobs[s.Hash])
	}
	return whole
}

// stores runs a test with shards in the broker and in a folder.
func stores(t *testing.T, test func(*fixture, Config)) {
	t.Helper()
	t.Run("broker", func(t *testing.T) { test(newFixture(t, true), DefaultConfig()) })
	t.Run("folder", func(t *testing.T) {
		config := DefaultConfig()
		config.Dir = filepath.Join(t.TempDir(), "shards")
		test(newFixture(t, false), config)
	})
}

func TestPublishAndLoad(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		_, err := f.run.LatestManifest(f.ctx)
		require.ErrorIs(t, err, streams.ErrNoWeights)
		_, err = f.run.Manifest(f.ctx, 0)
		require.ErrorIs(t, err, streams.ErrNoWeights)

		w, reader := newClient(t, f.run, config), newClient(t, f.attach(t), config)
		for v := range int64(3) {
			m, blobs := weightsOf(v, 2)
			require.NoError(t, w.Publish(f.ctx, m, blobs))
			require.NoError(t, w.Publish(f.ctx, m, blobs), "again is no change")
			got, err := f.run.LatestManifest(f.ctx)
			require.NoError(t, err)
			require.Equal(t, m, got)
			whole, err := reader.Load(f.ctx, got)
			require.NoError(t, err)
			require.Equal(t, wholeOf(v), whole)
		}
		first, err := f.run.Manifest(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, int64(0), first.Version)
		history, err := f.run.Seam().Manifests(f.ctx)
		require.NoError(t, err)
		require.Len(t, history, 3)
	})
}

func TestWeightsOfAnotherFolderAreNamedAndPutBack(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		m, blobs := weightsOf(0, 2)
		require.NoError(t, newClient(t, f.run, config).Publish(f.ctx, m, blobs))
		other := DefaultConfig()
		if config.Dir == "" {
			other.Dir = t.TempDir()
		}
		moved := newClient(t, f.run, other)
		_, err := moved.Load(f.ctx, m)
		require.ErrorIs(t, err, streams.ErrNoShard)
		require.ErrorContains(t, err, "weights.dir")
		require.NoError(t, moved.Publish(f.ctx, m, blobs))
		whole, err := moved.Load(f.ctx, m)
		require.NoError(t, err)
		require.Equal(t, wholeOf(0), whole)
	})
}

func TestPublishRefuses(t *testing.T) {
	f := newFixture(t, false)
	m, blobs := weightsOf(0, 2)
	foreign := *m
	foreign.Run = "other"
	require.ErrorIs(t, publishWeights(f.ctx, f.run, &foreign, blobs), schemas.ErrInvalid)
	missing := map[string][]byte{m.Shards[0].Hash: blobs[m.Shards[0].Hash]}
	require.ErrorIs(t, publishWeights(f.ctx, f.run, m, missing), streams.ErrCorruptShard)
	wrong := map[string][]byte{m.Shards[0].Hash: blobs[m.Shards[1].Hash], m.Shards[1].Hash: blobs[m.Shards[0].Hash]}
	require.ErrorIs(t, publishWeights(f.ctx, f.run, m, wrong), streams.ErrCorruptShard)
	_, err := f.run.LatestManifest(f.ctx)
	require.ErrorIs(t, err, streams.ErrNoWeights)
	_, err = NewPublisher(f.run, Config{})
	require.ErrorContains(t, err, "base_every: 0: must be between 1 and 32")
}

// Invariant: published versions only rise, whoever publishes.
func TestPublishedVersionsOnlyRiseWhoeverPublishes(t *testing.T) {
	f := newFixture(t, true)
	zombie := f.attach(t)
	for v := range int64(3) {
		m, blobs := weightsOf(v, 1)
		require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	}
	old, blobs := weightsOf(1, 1)
	require.NoError(t, publishWeights(f.ctx, zombie, old, blobs), "what is published already is no harm")
	for _, version := range []int64{0, 1, 2} {
		other, blobs := weightsOf(9, 1)
		other.Version = version
		require.ErrorIs(t, publishWeights(f.ctx, zombie, other, blobs), streams.ErrFenced)
	}
	latest, err := f.run.LatestManifest(f.ctx)
	require.NoError(t, err)
	require.Equal(t, int64(2), latest.Version)

	// Two trainers race with different weights for every version: one wins each, and history is in order.
	var wg sync.WaitGroup
	for i, run := range []*streams.Run{f.run, zombie} {
		wg.Go(func() {
			for v := int64(3); v < 12; v++ {
				m, blobs := weightsOf(v+int64(100*i), 1)
				m.Version = v
				if err := publishWeights(f.ctx, run, m, blobs); err != nil && !errors.Is(err, streams.ErrFenced) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	history, err := f.run.Seam().Manifests(f.ctx)
	require.NoError(t, err)
	require.Equal(t, int64(11), history[0].Version)
	require.True(t, slices.IsSortedFunc(history, func(a, b *schemas.Manifest) int { return int(b.Version - a.Version) }))
	require.Len(t, slices.CompactFunc(history, func(a, b *schemas.Manifest) bool { return a.Version == b.Version }), len(history))
	_, err = shardOf(f.ctx, f.run, history[0].Shards[0])
	require.NoError(t, err)
}

// Invariant: a manifest is visible only when all its shards are.
func TestAManifestIsVisibleOnlyWhenAllItsShardsAre(t *testing.T) {
	f := newFixture(t, true)
	ctx, cancel := context.WithCancel(f.ctx)
	reader := f.attach(t)
	done := make(chan error, 1)
	var seen []int64
	go func() {
		done <- reader.FollowWeights(ctx, func(m *schemas.Manifest) error {
			seen = append(seen, m.Version)
			for _, s := range m.Shards {
				if _, err := shardOf(f.ctx, reader, s); err != nil {
					return err
				}
			}
			if m.Version == 14 {
				cancel()
			}
			return nil
		})
	}()
	for v := range int64(15) {
		m, blobs := weightsOf(v, 3)
		require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	}
	require.NoError(t, <-done)
	require.True(t, slices.IsSorted(seen))
}

// Invariant: the versions that fn sees only rise.
func TestTheVersionsThatFnSeesOnlyRise(t *testing.T) {
	f := newFixture(t, false)
	m, blobs := weightsOf(0, 1)
	require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	ctx, cancel := context.WithCancel(f.ctx)
	entered, release := make(chan struct{}), make(chan struct{})
	var seen []int64
	done := make(chan error, 1)
	go func() {
		done <- f.run.FollowWeights(ctx, func(m *schemas.Manifest) error {
			seen = append(seen, m.Version)
			if m.Version == 0 {
				close(entered)
				<-release
			}
			if m.Version == 5 {
				cancel()
			}
			return nil
		})
	}()
	<-entered
	for v := int64(1); v <= 5; v++ {
		m, blobs := weightsOf(v, 1)
		require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	}
	// A watch that began now has heard of the five; the first one has too, or hears of the rest later.
	_, err := f.run.LatestManifest(f.ctx)
	require.NoError(t, err)
	close(release)
	require.NoError(t, <-done)
	require.True(t, slices.IsSorted(seen), seen)
	require.Equal(t, int64(5), seen[len(seen)-1])

	broken := errors.New("cannot swap")
	require.ErrorIs(t, f.run.FollowWeights(f.ctx, func(*schemas.Manifest) error { return broken }), broken)
}

func TestTooSlowForAVersionGoesOnToTheNewest(t *testing.T) {
	f := newFixture(t, false)
	m, blobs := weightsOf(0, 1)
	require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	ctx, cancel := context.WithCancel(f.ctx)
	err := f.run.FollowWeights(ctx, func(m *schemas.Manifest) error {
		if m.Version == 0 {
			for v := int64(1); v <= 4; v++ {
				next, blobs := weightsOf(v, 1)
				require.NoError(t, publishWeights(f.ctx, f.run, next, blobs))
			}
		}
		if m.Version == 4 {
			cancel()
		}
		_, err := shardOf(f.ctx, f.run, m.Shards[0])
		return err
	})
	require.NoError(t, err)

	gone, _ := weightsOf(0, 1)
	err = f.run.FollowWeights(f.ctx, func(*schemas.Manifest) error {
		_, err := shardOf(f.ctx, f.run, gone.Shards[0])
		return err
	})
	require.ErrorIs(t, err, streams.ErrNoShard, "no newer version: the shard is missing for good")
}

// Invariant: no shard that a kept version needs is removed.
func TestNoShardThatAKeptVersionNeedsIsRemoved(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		for _, every := range []int{1, 5} {
			t.Run(fmt.Sprint("base every ", every), func(t *testing.T) {
				config.BaseEvery = every
				w := newClient(t, f.run, config)
				from := int64(100 * every)
				for v := from; v < from+13; v++ {
					m, blobs := weightsOf(v, 2)
					require.NoError(t, w.Publish(f.ctx, m, blobs))

					history, err := f.run.Seam().Manifests(f.ctx)
					require.NoError(t, err)
					kept := history[:min(len(history), f.run.Topology().WeightsKeep)]
					for _, m := range kept {
						whole, err := newClient(t, f.run, config).Load(f.ctx, m)
						require.NoError(t, err, "version %d after version %d", m.Version, v)
						require.Equal(t, wholeOf(m.Version), whole)
					}
					present, err := w.store.listShards(f.ctx)
					require.NoError(t, err)
					require.LessOrEqual(t, len(present), 2*(f.run.Topology().WeightsKeep+every))
				}
			})
		}
	})
}

func TestDeltas(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		config.BaseEvery = 4
		w, follower := newClient(t, f.run, config), newClient(t, f.attach(t), config)
		var bases []int64
		for v := range int64(9) {
			m, blobs := weightsOf(v, 2)
			require.NoError(t, w.Publish(f.ctx, m, blobs))
			stored, err := f.run.LatestManifest(f.ctx)
			require.NoError(t, err)
			bases = append(bases, stored.Base)
			for _, s := range stored.Shards {
				if stored.Base != schemas.NoBase {
					require.Less(t, s.Size, int64(200), "a delta of one byte is small")
				}
			}
			for name, reader := range map[string]*client{"follower": follower, "late joiner": newClient(t, f.run, config)} {
				whole, err := reader.Load(f.ctx, stored)
				require.NoError(t, err, name)
				require.Equal(t, wholeOf(v), whole, name)
			}
			require.NoError(t, w.Publish(f.ctx, m, blobs), "again is no change, whole or not")
		}
		require.Equal(t, []int64{-1, 0, 1, 2, -1, 4, 5, 6, -1}, bases)

		// A trainer that starts again does not hold the base, and begins with a whole one.
		m, blobs := weightsOf(9, 2)
		require.NoError(t, newClient(t, f.run, config).Publish(f.ctx, m, blobs))
		stored, err := f.run.LatestManifest(f.ctx)
		require.NoError(t, err)
		require.Equal(t, schemas.NoBase, stored.Base)
		// And the zombie, whose base is another, cannot publish, nor build on what it holds.
		m, blobs = weightsOf(10, 2)
		require.NoError(t, w.Publish(f.ctx, m, blobs))
		stored, err = f.run.LatestManifest(f.ctx)
		require.NoError(t, err)
		require.Equal(t, schemas.NoBase, stored.Base)
	})
}

// Invariant: every loaded byte was verified against the manifest.
func TestEveryLoadedByteWasVerifiedAgainstTheManifest(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		f := newFixture(t, false)
		config := Config{Dir: t.TempDir(), BaseEvery: 1}
		w := newClient(t, f.run, config)
		m, blobs := weightsOf(0, 1)
		require.NoError(t, w.Publish(f.ctx, m, blobs))
		path := filepath.Join(config.Dir, m.Shards[0].Hash)
		bad := bytes.Clone(blobs[m.Shards[0].Hash])
		bad[7]++
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		_, err := w.Load(f.ctx, m)
		require.ErrorIs(t, err, streams.ErrCorruptShard)
		require.NoError(t, os.Truncate(path, 10))
		_, err = w.Load(f.ctx, m)
		require.ErrorIs(t, err, streams.ErrCorruptShard)
		require.NoError(t, os.Remove(path))
		_, err = w.Load(f.ctx, m)
		require.ErrorIs(t, err, streams.ErrNoShard)

		outside := m.Shards[0]
		outside.Hash = "../" + filepath.Base(config.Dir)
		_, err = w.Shard(f.ctx, outside)
		require.ErrorIs(t, err, streams.ErrCorruptShard)
	})
	t.Run("broker", func(t *testing.T) {
		f := newFixture(t, false)
		m, blobs := weightsOf(0, 1)
		require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
		store, err := f.js.ObjectStore(f.ctx, shardsBucket)
		require.NoError(t, err)
		bad := bytes.Clone(blobs[m.Shards[0].Hash])
		bad[7]++
		_, err = store.PutBytes(f.ctx, m.Shards[0].Hash, bad)
		require.NoError(t, err)
		_, err = shardOf(f.ctx, f.run, m.Shards[0])
		require.ErrorIs(t, err, streams.ErrCorruptShard)
		_, err = store.PutBytes(f.ctx, m.Shards[0].Hash, bad[:9])
		require.NoError(t, err)
		_, err = shardOf(f.ctx, f.run, m.Shards[0])
		require.ErrorIs(t, err, streams.ErrCorruptShard)
	})
	t.Run("delta of other weights", func(t *testing.T) {
		f := newFixture(t, false)
		w := newClient(t, f.run, Config{BaseEvery: 4})
		for v := range int64(2) {
			m, blobs := weightsOf(v, 1)
			require.NoError(t, w.Publish(f.ctx, m, blobs))
		}
		m, err := f.run.LatestManifest(f.ctx)
		require.NoError(t, err)
		require.Equal(t, int64(0), m.Base)
		m.Shards[0].FullHash = sha([]byte("other"))
		_, err = newClient(t, f.run, Config{BaseEvery: 4}).Load(f.ctx, m)
		require.ErrorIs(t, err, streams.ErrCorruptShard)
	})
}

func TestLargeShard(t *testing.T) {
	f := newFixture(t, true)
	data := make([]byte, 5<<20)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	m, _ := weightsOf(0, 1)
	m.Shards[0] = schemas.Shard{Hash: sha(data), FullHash: sha(data), Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}
	require.NoError(t, publishWeights(f.ctx, f.run, m, map[string][]byte{sha(data): data}))
	got, err := shardOf(f.ctx, f.run, m.Shards[0])
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

func TestWeightsOutliveTheBroker(t *testing.T) {
	f := newFixture(t, true)
	m, blobs := weightsOf(0, 1)
	require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	ctx, cancel := context.WithCancel(f.ctx)
	versions := make(chan int64, 10)
	done := make(chan error, 1)
	reader := f.attach(t)
	go func() {
		done <- reader.FollowWeights(ctx, func(m *schemas.Manifest) error {
			versions <- m.Version
			return nil
		})
	}()
	require.Equal(t, int64(0), <-versions)
	f.restart()
	m, blobs = weightsOf(1, 1)
	require.NoError(t, publishWeights(f.ctx, f.run, m, blobs))
	require.Equal(t, int64(1), <-versions)
	cancel()
	require.NoError(t, <-done)
}

func TestSweepRemovesWhatADeadPublisherLeft(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		w := newClient(t, f.run, config)
		m, blobs := weightsOf(0, 2)
		require.NoError(t, w.Publish(f.ctx, m, blobs))
		var left func() int
		switch store := w.store.(type) {
		case objectShards:
			subject := "$O." + shardsBucket + ".C.ABANDONED"
			for range 3 {
				_, err := f.js.Publish(f.ctx, subject, []byte("chunk"))
				require.NoError(t, err)
			}
			left = func() int {
				stream, err := f.js.Stream(f.ctx, store.streamName())
				require.NoError(t, err)
				info, err := stream.Info(f.ctx, jetstream.WithSubjectFilter(subject))
				require.NoError(t, err)
				return int(info.State.Subjects[subject])
			}
		case folderShards:
			require.NoError(t, os.WriteFile(filepath.Join(store.dir, tmpPrefix+"1"), []byte("chunk"), 0o600))
			left = func() int {
				tmps, err := filepath.Glob(filepath.Join(store.dir, tmpPrefix+"*"))
				require.NoError(t, err)
				return len(tmps)
			}
		}
		require.NoError(t, w.store.sweepUnfinished(f.ctx, time.Hour))
		require.NotZero(t, left(), "it may still be under way")
		require.NoError(t, w.store.sweepUnfinished(f.ctx, 0))
		require.Zero(t, left())
		whole, err := w.Load(f.ctx, m)
		require.NoError(t, err)
		require.Equal(t, wholeOf(0), whole)
	})
}

func TestObjectWithoutItsChunksIsCorrupt(t *testing.T) {
	f := newFixture(t, false)
	data := bytes.Repeat([]byte("abcd"), 600_000) // three chunks
	hash := sha(data)
	m, _ := weightsOf(0, 1)
	m.Shards[0] = schemas.Shard{Hash: hash, FullHash: hash, Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}
	require.NoError(t, publishWeights(f.ctx, f.run, m, map[string][]byte{hash: data}))
	stream, err := f.js.Stream(f.ctx, f.objects().streamName())
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(f.ctx, 2))
	_, err = shardOf(f.ctx, f.run, m.Shards[0])
	require.ErrorIs(t, err, streams.ErrCorruptShard)
}

// counted is a store that says how many shards were put.
type counted struct {
	shardStore
	done func()
}

func (c counted) putShard(ctx context.Context, hash string, data Blob) (string, error) {
	defer c.done()
	return c.shardStore.putShard(ctx, hash, data)
}

// Defect S2: all shards of a version were encoded at once, a whole copy of the weights.
func TestPublishFromHoldsAFewShardsAtATime(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		const shards = 40
		var mu sync.Mutex
		alive, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			alive += n
			most = max(most, alive)
		}
		w := newClient(t, f.run, config)
		w.store = counted{w.store, func() { count(-1) }}
		from := func(version int64) (*schemas.Manifest, ShardSource, *schemas.Manifest) {
			whole, blobs := weightsOf(version, shards)
			m := *whole
			m.Shards = make([]schemas.Shard, shards)
			for i := range m.Shards {
				m.Shards[i].Encoding = schemas.EncodingSafetensors
			}
			return &m, func(i int) (Blob, error) { count(1); return Bytes(slices.Clone(blobs[whole.Shards[i].Hash])), nil }, whole
		}
		for v := range int64(2) {
			m, source, want := from(v)
			require.NoError(t, w.PublishFrom(f.ctx, m, source))
			require.Equal(t, want, m)
			got, err := f.run.LatestManifest(f.ctx)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Zero(t, alive)
			require.LessOrEqual(t, most, shardsAlive())
		}
		// Published again, it puts back what the store lacks.
		m, source, want := from(1)
		require.NoError(t, w.store.removeShard(f.ctx, want.Shards[7].Hash))
		require.NoError(t, w.PublishFrom(f.ctx, m, source))
		whole, err := newClient(t, f.attach(t), config).Load(f.ctx, want)
		require.NoError(t, err)
		require.Len(t, whole, shards)

		m, source, _ = from(0)
		m.Shards = m.Shards[:3]
		require.ErrorIs(t, w.PublishFrom(f.ctx, m, source), streams.ErrFenced)
		broken := errors.New("cannot encode")
		m, _, _ = from(2)
		require.ErrorIs(t, w.PublishFrom(f.ctx, m, func(int) (Blob, error) { return nil, broken }), broken)
		latest, err := f.run.LatestManifest(f.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, latest.Version)
	})
}

func TestPublishFromMakesDeltasToo(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		config.BaseEvery = 4
		w, reader := newClient(t, f.run, config), newClient(t, f.attach(t), config)
		deltas := 0
		for v := range int64(6) {
			whole, blobs := weightsOf(v, 2)
			m := *whole
			m.Shards = []schemas.Shard{{Encoding: schemas.EncodingSafetensors}, {Encoding: schemas.EncodingSafetensors}}
			require.NoError(t, w.PublishFrom(f.ctx, &m, func(i int) (Blob, error) { return Bytes(blobs[whole.Shards[i].Hash]), nil }))
			got, err := f.run.LatestManifest(f.ctx)
			require.NoError(t, err)
			if got.Base != schemas.NoBase {
				deltas++
			}
			loaded, err := reader.Load(f.ctx, got)
			require.NoError(t, err)
			require.Equal(t, wholeOf(v), loaded)
		}
		require.Positive(t, deltas)
	})
}

// The base of a delta is read again from its source: nothing of it is kept. What is gone, or another, is no base.
func TestABaseThatIsGoneOrChangedMakesAWholeVersion(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		config.BaseEvery = 16
		w := newClient(t, f.run, config)
		var bases []int64
		for v := range int64(6) {
			whole, blobs := weightsOf(v, 3)
			m := *whole
			m.Shards = make([]schemas.Shard, 3)
			for i := range m.Shards {
				m.Shards[i] = schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: whole.Shards[i].Size}
			}
			published := false
			require.NoError(t, w.PublishFrom(f.ctx, &m, func(i int) (Blob, error) {
				data := slices.Clone(blobs[whole.Shards[i].Hash])
				switch {
				case published && v == 1 && i == 1:
					return nil, errors.New("the file is gone")
				case published && v == 3 && i == 1:
					data[0]++
				}
				return Bytes(data), nil
			}))
			published = true
			got, err := f.run.LatestManifest(f.ctx)
			require.NoError(t, err)
			bases = append(bases, got.Base)
			loaded, err := newClient(t, f.attach(t), config).Load(f.ctx, got)
			require.NoError(t, err)
			for i, data := range loaded {
				require.Equal(t, blobs[whole.Shards[i].Hash], data)
			}
		}
		require.Equal(t, []int64{-1, 0, -1, 2, -1, 4}, bases)
	})
}

// A loader holds version 0 of weights that are gone: the version was published anew with other weights, on which version 1 is a delta. The
// loader reads the chain from the base that is stored.
func TestABaseThatWasPublishedAnewIsReadAgain(t *testing.T) {
	f := newFixture(t, false)
	config := Config{BaseEvery: 4}
	loader := newClient(t, f.attach(t), config)
	before, _ := weightsOf(3, 2)
	before.Version = 0
	_, blobs := weightsOf(3, 2)
	require.NoError(t, newClient(t, f.run, config).Publish(f.ctx, before, blobs))
	_, err := loader.Load(f.ctx, latest(t, f))
	require.NoError(t, err)
	bucket, err := f.js.Stream(f.ctx, "KV_WEIR_run-1_WEIGHTS")
	require.NoError(t, err)
	require.NoError(t, bucket.Purge(f.ctx))
	again := newClient(t, f.run, config)
	for v := range int64(2) {
		m, blobs := weightsOf(v, 2)
		require.NoError(t, again.Publish(f.ctx, m, blobs))
	}
	m := latest(t, f)
	require.EqualValues(t, 0, m.Base)
	loader.loader.keepsHeld = true
	got, err := loader.Load(f.ctx, m)
	require.NoError(t, err)
	require.Equal(t, wholeOf(1), got)
}

func latest(t *testing.T, f *fixture) *schemas.Manifest {
	t.Helper()
	m, err := f.run.LatestManifest(f.ctx)
	require.NoError(t, err)
	return m
}
