package weights

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
)

// storedVersion is a version whose shards are all in the store.
type storedVersion struct {
	// whole names the whole shards, announced is the manifest that readers get: whole, or a manifest of deltas.
	whole, announced *schemas.Manifest
	// blobs are announced's own shards, until release.
	blobs  ShardSource
	length int
	// spooled holds the deltas, nil where there are none.
	spooled *spool
}

func (s storedVersion) removeSpool() { s.spooled.removeSpool() }

// storeVersion stores the shards of a version: deltas where the plan has a base and they are worth it, and whole shards else.
func (p *Publisher) storeVersion(ctx context.Context, plan versionPlan, whole wholeShards) (stored storedVersion, err error) {
	named := copyManifest(plan.manifest)
	if plan.frozen {
		if err := p.storeFrozen(ctx, named, whole.open); err != nil {
			return stored, fmt.Errorf("store what the adapter is added to: %w", err)
		}
	}
	deltas, err := p.makeDeltas(ctx, plan, whole)
	if err != nil {
		return stored, err
	}
	if deltas == nil {
		err = p.storeWhole(ctx, named, whole.open)
		return storedVersion{whole: named, announced: named, blobs: whole.open, length: 1}, err
	}
	announced := copyManifest(named)
	announced.Base, announced.Shards = plan.latest.Version, deltas.shards
	for i, s := range deltas.shards {
		nameShard(&named.Shards[i], s.FullHash, deltas.sizes[i])
	}
	err = eachShard(ctx, len(announced.Shards), func(i int) error {
		_, err := p.storeShard(ctx, announced.Shards[i].Hash, deltas.spool.openDelta, i)
		return err
	})
	if err != nil {
		deltas.spool.removeSpool()
		return stored, err
	}
	return storedVersion{whole: named, announced: announced, blobs: deltas.spool.openDelta, length: plan.base.length + 1, spooled: deltas.spool}, nil
}

// storeWhole stores the whole shards of m, and names them in m.
func (p *Publisher) storeWhole(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	return eachShard(ctx, len(m.Shards), func(i int) error {
		s, err := p.storeShard(ctx, m.Shards[i].Hash, source, i)
		if err == nil {
			nameShard(&m.Shards[i], s.Hash, s.Size)
		}
		return err
	})
}

// storeFrozen stores the frozen shards of an adapter, and names them in m.
func (p *Publisher) storeFrozen(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	return eachShard(ctx, len(m.Adapter.Frozen), func(i int) error {
		s, err := p.storeShard(ctx, m.Adapter.Frozen[i].Hash, source, len(m.Shards)+i)
		if err == nil {
			m.Adapter.Frozen[i] = s
		}
		return err
	})
}

// storeAgain stores the whole shards of a version that is published already, and returns the version's manifest of whole shards. It
// fails with streams.ErrFenced where the version is published with other weights, or a newer version is published.
func (p *Publisher) storeAgain(ctx context.Context, plan versionPlan, source ShardSource) (*schemas.Manifest, error) {
	named, err := p.nameShards(ctx, plan.manifest, source)
	if err != nil {
		return nil, err
	}
	published, err := plan.findPublished(named)
	if err != nil {
		return nil, err
	}
	if named.Adapter != nil {
		if err := p.storeFrozen(ctx, named, source); err != nil {
			return nil, fmt.Errorf("store what the adapter is added to: %w", err)
		}
	}
	err = eachShard(ctx, len(named.Shards), func(i int) error {
		if published.Shards[i].Hash != named.Shards[i].Hash {
			return nil // stored as a delta
		}
		_, err := p.storeShard(ctx, named.Shards[i].Hash, source, i)
		return err
	})
	return named, err
}

// nameShards is a copy of m that names all shards. It stores nothing.
func (p *Publisher) nameShards(ctx context.Context, m *schemas.Manifest, source ShardSource) (*schemas.Manifest, error) {
	named := copyManifest(m)
	err := eachShard(ctx, len(m.AllShards()), func(i int) error {
		s := shardAt(named, i)
		if s.Hash != "" {
			return nil
		}
		blob, err := source(i)
		if err != nil {
			return fmt.Errorf("read shard %d: %w", i, err)
		}
		defer func() { _ = blob.Close() }() // read only
		hash, err := hashOf(ctx, blob)
		if err != nil {
			return fmt.Errorf("read shard %d: %w", i, err)
		}
		nameShard(s, hash, blob.Size())
		s.Encoding = schemas.EncodingSafetensors
		return nil
	})
	if err != nil {
		return nil, err
	}
	return named, p.run.CheckManifest(named)
}

// shardAt is shard i of m, counted over its own shards and then the frozen shards.
func shardAt(m *schemas.Manifest, i int) *schemas.Shard {
	if i < len(m.Shards) {
		return &m.Shards[i]
	}
	return &m.Adapter.Frozen[i-len(m.Shards)]
}

// storeShard stores a whole shard of a source, under its name where that is known.
func (p *Publisher) storeShard(ctx context.Context, hash string, source ShardSource, i int) (s schemas.Shard, err error) {
	blob, err := source(i)
	if err != nil {
		return s, fmt.Errorf("read shard %d: %w", i, err)
	}
	defer func() { _ = blob.Close() }() // read only
	if hash, err = p.store.putShard(ctx, hash, blob); err != nil {
		return s, fmt.Errorf("store shard %d: %w", i, err)
	}
	return schemas.Shard{Hash: hash, FullHash: hash, Size: blob.Size(), Encoding: schemas.EncodingSafetensors}, nil
}

// shardsAlive bounds how many shards are asked for and not yet stored.
func shardsAlive() int { return min(runtime.GOMAXPROCS(0), 4) }

// eachShard calls do for each of n shards, a few at a time, until a call fails or ctx ends.
func eachShard(ctx context.Context, n int, do func(i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(shardsAlive())
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(i)
		})
	}
	return group.Wait()
}
