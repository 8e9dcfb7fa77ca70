package streams

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// The frozen shards of a version that is an adapter: see schemas.Adapter. A ShardSource has them after the version's own.

// storeFrozen stores the frozen shards of m, and names those that are not named. Where latest names the same they are stored
// already, and read by nobody.
func (w *Weights) storeFrozen(ctx context.Context, m, latest *schemas.Manifest, source ShardSource) error {
	if m.Adapter == nil || latest != nil && sameFrozen(m, latest) {
		return nil
	}
	frozen := slices.Clone(m.Adapter.Frozen)
	err := parallel(ctx, len(frozen), func(i int) error {
		s, err := w.put(ctx, frozen[i].Hash, source, len(m.Shards)+i)
		if err == nil {
			frozen[i] = s
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("store what the adapter is added to: %w", err)
	}
	own := *m.Adapter
	own.Frozen = frozen
	m.Adapter = &own
	return nil
}

// nameFrozen finds the names of the frozen shards of m that have none, and stores nothing.
func (w *Weights) nameFrozen(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	if m.Adapter == nil {
		return nil
	}
	own := *m.Adapter
	own.Frozen = slices.Clone(own.Frozen)
	m.Adapter = &own
	return parallel(ctx, len(own.Frozen), func(i int) error {
		if own.Frozen[i].Hash != "" {
			return nil
		}
		blob, err := source(len(m.Shards) + i)
		if err != nil {
			return fmt.Errorf("read shard %d: %w", len(m.Shards)+i, err)
		}
		defer func() { _ = blob.Close() }() // read only
		hash, err := hashOf(ctx, blob)
		if err != nil {
			return fmt.Errorf("read shard %d: %w", len(m.Shards)+i, err)
		}
		own.Frozen[i].Encoding = schemas.EncodingSafetensors
		name(&own.Frozen[i], hash, blob.Size())
		return nil
	})
}

// put stores a whole shard of a source, under its name where that is known.
func (w *Weights) put(ctx context.Context, hash string, source ShardSource, i int) (s schemas.Shard, err error) {
	blob, err := source(i)
	if err != nil {
		return s, fmt.Errorf("read shard %d: %w", i, err)
	}
	defer func() { _ = blob.Close() }() // read only
	if hash, err = w.store.put(ctx, hash, blob); err != nil {
		return s, fmt.Errorf("store shard %d: %w", i, err)
	}
	return schemas.Shard{Hash: hash, FullHash: hash, Size: blob.Size(), Encoding: schemas.EncodingSafetensors}, nil
}

// sameFrozen is whether two versions are adapters on the same weights, or both are none.
func sameFrozen(a, b *schemas.Manifest) bool {
	if a.Adapter == nil || b.Adapter == nil {
		return a.Adapter == b.Adapter
	}
	return a.Adapter.Rank == b.Adapter.Rank && a.Adapter.Alpha == b.Adapter.Alpha &&
		slices.EqualFunc(a.Adapter.Frozen, b.Adapter.Frozen, func(x, y schemas.Shard) bool { return x.FullHash == y.FullHash })
}

// frozenShards are the bytes of the frozen shards of m, none where it is no adapter. They stay in memory for the versions to come.
func (w *Weights) frozenShards(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	if m.Adapter == nil {
		return nil, nil
	}
	have := map[string][]byte{}
	out := make([][]byte, len(m.Adapter.Frozen))
	err := parallel(ctx, len(out), func(i int) (err error) {
		s := m.Adapter.Frozen[i]
		if out[i] = w.frozen[s.Hash]; out[i] == nil {
			out[i], err = w.Shard(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load what the adapter of version %d is added to: %w", m.Version, err)
	}
	for i, s := range m.Adapter.Frozen {
		have[s.Hash] = out[i]
	}
	w.frozen = have
	return out, nil
}
