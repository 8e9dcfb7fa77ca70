package weights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// Publisher publishes the policy versions of a run. It is safe for concurrent use, a single publish at a time. With deltas it goes on from
// the version that it published last, and asks that version's source for the shards again.
type Publisher struct {
	run    seam.Run
	config Config
	store  shardStore
	// keep is how many versions keep their shards.
	keep int

	mu sync.Mutex
	// held is the version that the next delta is against, nil where there is none.
	held  *heldVersion
	swept time.Time
	// spoolDir is a folder for deltas until they are stored; "" is that of the shards, or the system's own.
	spoolDir string
}

// heldVersion is the version that was published last.
type heldVersion struct {
	manifest *schemas.Manifest
	whole    wholeShards
	// length is that of the chain of bases that the version ends; 1 where it is whole.
	length int
}

// wholeShards are the whole shards of a version.
type wholeShards struct {
	open ShardSource
	// stable is whether nobody else writes to their memory.
	stable bool
}

const (
	// orphanAge is how long a put may be under way. Older shards that no manifest names count as orphans.
	orphanAge = 10 * time.Minute
	// sweepEvery is how often a publisher looks for orphans.
	sweepEvery = time.Minute
)

// NewPublisher is a publisher of the run's policy versions. The error is of [Config.Validate].
func NewPublisher(run *streams.Run, config Config) (*Publisher, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure weights: %w", err)
	}
	s := run.Seam()
	return &Publisher{run: s, config: config, store: newShardStore(s, config), keep: max(run.Topology().WeightsKeep, 1)}, nil
}

// SpoolIn names a folder for the files that lie on the disk while a version is published.
func (p *Publisher) SpoolIn(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoolDir = dir
}

// Publish makes a policy version visible: first its shards, where they are not stored yet, then the manifest. shards holds the bytes
// of each whole shard of m, and of each frozen shard, by its hash. As configured, deltas are stored instead where they are smaller,
// and the manifest that readers get names the deltas; m is not changed.
//
// Publishing the same weights of a version again succeeds. It stores the whole shards that the store lacks, as when the run goes on
// with another Dir, and changes nothing else. Publish fails with [streams.ErrFenced] if the version is published with other weights
// or a newer version is published, and with [streams.ErrCorruptShard] if shards are not the shards that m names. Versions that are no
// longer kept, and shards that no kept version needs, are removed.
//
// Invariant: a manifest is visible only when all its shards are.
// Invariant: published versions only rise, whoever publishes.
// Invariant: no shard that a kept version needs is removed.
func (p *Publisher) Publish(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) error {
	if err := p.run.CheckManifest(m); err != nil {
		return err
	}
	all := m.AllShards()
	whole := make([][]byte, len(all))
	for i, s := range all {
		data := shards[s.Hash]
		if err := verifyShard(s, int64(len(data)), schemas.ContentHash(data)); err != nil {
			return err
		}
		whole[i] = data
		if p.config.BaseEvery > 1 {
			whole[i] = slices.Clone(whole[i]) // the base of the next delta, while the caller may write to its own copy
		}
	}
	_, err := p.publishVersion(ctx, m, wholeShards{open: func(i int) (Blob, error) { return Bytes(whole[i]), nil }, stable: true})
	return err
}

// PublishFrom is [Publisher.Publish] of shards that are read in pieces, hashed and stored, a few side by side, so that some
// megabytes of them are in memory, however large a shard is. Deltas wait on the disk until all are made: see [Publisher.SpoolIn].
// The caller sets the encoding of each shard of m, and the size where it is known: where all sizes are known, at most half of
// the bytes are ever made into deltas. A hash is "", or that of the shard. PublishFrom returns a copy of m that names all whole
// shards, and does not change m.
//
// Where m is an adapter, the source has the frozen shards after the version's own. They are stored once: as long as the newest
// version names the same frozen shards, by their hashes, they are not asked for.
//
// With deltas the source is called again when the next version is published: its shards are the base of those deltas. Where the
// source then fails, or gives other bytes, the next version is published whole.
func (p *Publisher) PublishFrom(ctx context.Context, m *schemas.Manifest, source ShardSource) (*schemas.Manifest, error) {
	return p.publishVersion(ctx, m, wholeShards{open: source})
}

func (p *Publisher) publishVersion(ctx context.Context, m *schemas.Manifest, whole wholeShards) (*schemas.Manifest, error) {
	if m.Base != schemas.NoBase {
		return nil, fmt.Errorf("%w: manifest.base: %d: whole weights are published; deltas are made here", schemas.ErrInvalid, m.Base)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		published, err := p.publishOnce(ctx, m, whole)
		if err != nil {
			return nil, fmt.Errorf("publish version %d: %w", m.Version, err)
		}
		if published != nil {
			return published, nil
		}
	}
}

// publishOnce returns nil, nil where another publisher has written a manifest in between.
func (p *Publisher) publishOnce(ctx context.Context, m *schemas.Manifest, whole wholeShards) (*schemas.Manifest, error) {
	plan, err := p.planVersion(ctx, m)
	if err != nil {
		return nil, err
	}
	if plan.published {
		return p.storeAgain(ctx, plan, whole.open)
	}
	stored, err := p.storeVersion(ctx, plan, whole)
	if errors.Is(err, streams.ErrShardsFull) && p.store.sweepUnfinished(ctx, orphanAge) == nil {
		// The chunks of publishers that died in a put would stay: else only a publish that succeeds removes it.
		stored, err = p.storeVersion(ctx, plan, whole)
	}
	if err != nil {
		return nil, err
	}
	defer stored.removeSpool()
	if ok, err := p.announceVersion(ctx, plan, stored); err != nil || !ok {
		return nil, err
	}
	if p.config.BaseEvery > 1 {
		p.held = &heldVersion{manifest: stored.announced, whole: whole, length: stored.length}
	}
	p.tidyStore(ctx, plan, stored, whole.open)
	return stored.whole, nil
}
