package weights

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// frozenOf is what the adapters of a test are added to: two shards.
func frozenOf(seed byte) [][]byte {
	return [][]byte{bytes.Repeat([]byte{seed, 1}, 3000), bytes.Repeat([]byte{seed, 2, 9}, 1000)}
}

// adapterOf is a version that is an adapter of two shards, and the source of its shards and frozen ones. asked counts the
// latter.
func adapterOf(version int64, seed byte, asked *atomic.Int64) (*schemas.Manifest, ShardSource) {
	m, blobs := weightsOf(version, 2)
	own, frozen := m.Shards, frozenOf(seed)
	m.Adapter = &schemas.Adapter{Rank: 8, Alpha: 16}
	for range frozen {
		m.Adapter.Frozen = append(m.Adapter.Frozen, schemas.Shard{Encoding: schemas.EncodingSafetensors})
	}
	m.Shards = nil
	for _, s := range own {
		m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: s.Size})
	}
	return m, func(i int) (Blob, error) {
		if i < len(own) {
			return Bytes(blobs[own[i].Hash]), nil
		}
		asked.Add(1)
		return Bytes(frozen[i-len(own)]), nil
	}
}

func TestAdaptersAreReadWithWhatTheyAreAddedTo(t *testing.T) {
	for name, every := range map[string]int{"whole": 1, "deltas": 4} {
		t.Run(name, func(t *testing.T) {
			stores(t, func(f *fixture, config Config) {
				t := f.t
				config.BaseEvery = every
				w, reader := newClient(t, f.run, config), newClient(t, f.attach(t), config)
				follower := newClient(t, f.attach(t), config)
				var asked, loads, fetches atomic.Int64
				reader.store = watched{shardStore: reader.store, reads: &loads}
				follower.store = watched{shardStore: follower.store, reads: &fetches}
				dir := filepath.Join(t.TempDir(), "files")
				var adapter *schemas.Adapter
				for v := range int64(7) {
					m, source := adapterOf(v, 5, &asked)
					if adapter != nil {
						m.Adapter = adapter
					}
					require.NoError(t, w.PublishFrom(f.ctx, m, source))
					adapter = m.Adapter
					require.EqualValues(t, 2, asked.Load(), "stored once")
					stored, err := f.run.LatestManifest(f.ctx)
					require.NoError(t, err)
					require.Equal(t, adapter, stored.Adapter)
					require.Equal(t, every > 1 && v%4 != 0, stored.Base != schemas.NoBase)

					want := append(wholeOf(v), frozenOf(5)...)
					got, err := reader.Load(f.ctx, stored)
					require.NoError(t, err)
					require.Equal(t, want, got)
					paths, err := follower.Files(f.ctx, stored, dir)
					require.NoError(t, err)
					require.Equal(t, want, read(t, paths))
					require.Len(t, listed(t, dir), 4)
					late := newClient(t, f.run, config)
					got, err = late.Load(f.ctx, stored)
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
				require.EqualValues(t, 7*2+2, loads.Load(), "what an adapter is added to is read once")
				if config.Dir == "" {
					require.EqualValues(t, 7*2+2, fetches.Load())
				}
			})
		})
	}
}

func TestAnAdapterIsPublishedAgainAndOnOtherWeights(t *testing.T) {
	stores(t, func(f *fixture, config Config) {
		t := f.t
		config.BaseEvery = 4
		w := newClient(t, f.run, config)
		var asked atomic.Int64
		m, source := adapterOf(0, 5, &asked)
		require.NoError(t, w.PublishFrom(f.ctx, m, source))
		first := m.Adapter.Frozen

		// A trainer that begins again does not know the hashes.
		m, source = adapterOf(0, 5, &asked)
		require.NoError(t, newClient(t, f.run, config).PublishFrom(f.ctx, m, source))
		require.Equal(t, first, m.Adapter.Frozen)
		// The same adapter on other weights, of another scale, or as weights of their own, is another version.
		m, source = adapterOf(0, 6, &asked)
		require.ErrorIs(t, w.PublishFrom(f.ctx, m, source), streams.ErrFenced)
		m, source = adapterOf(0, 5, &asked)
		m.Adapter.Alpha = 1
		require.ErrorIs(t, w.PublishFrom(f.ctx, m, source), streams.ErrFenced)
		m, source = adapterOf(0, 5, &asked)
		m.Adapter = nil
		require.ErrorIs(t, w.PublishFrom(f.ctx, m, source), streams.ErrFenced)

		// A shard that is gone from the store, as with a store that was lost, is stored again.
		require.NoError(t, w.store.removeShard(f.ctx, first[1].Hash))
		m, source = adapterOf(0, 5, &asked)
		require.NoError(t, w.PublishFrom(f.ctx, m, source))
		_, err := w.Shard(f.ctx, first[1])
		require.NoError(t, err)
		require.NoError(t, w.store.removeShard(f.ctx, first[0].Hash))
		m, source = adapterOf(1, 5, &asked)
		m.Adapter.Frozen = first
		require.NoError(t, w.PublishFrom(f.ctx, m, source))
		_, err = w.Shard(f.ctx, first[0])
		require.NoError(t, err)

		// On other weights a version is no delta. What the kept versions are added to stays; the rest goes.
		for v := int64(2); v < 40; v++ {
			m, source = adapterOf(v, 6, &asked)
			require.NoError(t, w.PublishFrom(f.ctx, m, source))
			if v == 2 {
				stored, err := f.run.LatestManifest(f.ctx)
				require.NoError(t, err)
				require.Equal(t, schemas.NoBase, stored.Base)
			}
		}
		stored, err := f.run.LatestManifest(f.ctx)
		require.NoError(t, err)
		got, err := newClient(t, f.run, config).Load(f.ctx, stored)
		require.NoError(t, err)
		require.Equal(t, append(wholeOf(39), frozenOf(6)...), got)
		_, err = w.Shard(f.ctx, first[0])
		require.ErrorIs(t, err, streams.ErrNoShard)
	})
}

func TestWhatAnAdapterIsAddedToIsVerified(t *testing.T) {
	f := newFixture(t, true)
	w := newClient(t, f.run, DefaultConfig())
	var asked, reads atomic.Int64
	m, source := adapterOf(0, 5, &asked)
	broken := errors.New("the disk is gone")
	err := w.PublishFrom(f.ctx, m, func(i int) (Blob, error) {
		if i == 3 {
			return nil, broken
		}
		return source(i)
	})
	require.ErrorIs(t, err, broken)
	_, err = f.run.LatestManifest(f.ctx)
	require.ErrorIs(t, err, streams.ErrNoWeights, "no manifest before all is stored")

	require.NoError(t, w.PublishFrom(f.ctx, m, source))
	reader := newClient(t, f.attach(t), DefaultConfig())
	changed := m.Adapter.Frozen[0].Hash
	reader.store = watched{shardStore: reader.store, reads: &reads, fail: func(hash string, _ sink) error {
		if hash == changed {
			return fmt.Errorf("%w: %s", streams.ErrCorruptShard, hash)
		}
		return nil
	}}
	_, err = reader.Load(f.ctx, m)
	require.ErrorIs(t, err, streams.ErrCorruptShard)
	_, err = reader.Files(f.ctx, m, filepath.Join(t.TempDir(), "files"))
	require.ErrorIs(t, err, streams.ErrCorruptShard)

	// By the bytes of each shard, as programs of others publish.
	shards := map[string][]byte{}
	for i, s := range m.AllShards() {
		blob, err := source(i)
		require.NoError(t, err)
		shards[s.Hash], err = bytesOf(f.ctx, blob)
		require.NoError(t, err)
	}
	again := *m
	again.Version = 1
	require.NoError(t, w.Publish(f.ctx, &again, shards))
	delete(shards, changed)
	again.Version = 2
	require.ErrorIs(t, w.Publish(f.ctx, &again, shards), streams.ErrCorruptShard)
}
