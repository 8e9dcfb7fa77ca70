package weights

import (
	"context"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// announceVersion publishes the manifest of a stored version. It also reports false where an earlier attempt was carried out and its answer
// was lost; the caller then finds its own version.
func (p *Publisher) announceVersion(ctx context.Context, plan versionPlan, stored storedVersion) (bool, error) {
	if err := p.run.CheckManifest(stored.announced); err != nil {
		return false, err
	}
	return p.run.SetManifest(ctx, stored.announced, plan.revision)
}

// tidyStore removes the shards that no kept version needs, and stores the shards of the announced version again that another publisher's
// tidy has removed meanwhile. The next publish repeats what fails here.
func (p *Publisher) tidyStore(ctx context.Context, plan versionPlan, stored storedVersion, whole ShardSource) {
	m := stored.announced
	log := p.run.Log().With("version", m.Version)
	present, err := p.store.listShards(ctx)
	if err == nil {
		err = p.run.CheckSeat(ctx)
	}
	if err != nil {
		log.Warn("old shards not removed", "err", err)
		return
	}
	for i, s := range m.AllShards() {
		if _, there := present[s.Hash]; there {
			continue
		}
		blobs := stored.blobs
		if i >= len(m.Shards) {
			blobs = whole // deltas are of a version's own shards alone
		}
		if _, err := p.storeShard(ctx, s.Hash, blobs, i); err != nil {
			log.Error("a shard of the newest version was removed by another publisher", "shard", s.Hash, "err", err)
		}
	}
	sweep := time.Since(p.swept) >= sweepEvery
	if sweep {
		if err := p.store.sweepUnfinished(ctx, orphanAge); err != nil {
			log.Warn("unfinished shards not removed", "err", err)
		}
		p.swept = time.Now()
	}
	history := append([]*schemas.Manifest{m}, plan.history...)
	for _, hash := range p.unneededShards(history, present, sweep) {
		if err := p.store.removeShard(ctx, hash); err != nil {
			log.Warn("old shard not removed", "shard", hash, "err", err)
		}
	}
}

// unneededShards are the hashes of the stored shards that no kept version of history needs.
func (p *Publisher) unneededShards(history []*schemas.Manifest, present map[string]time.Duration, sweep bool) (hashes []string) {
	// A shard that no manifest names may be another publisher's, whose manifest is about to follow. After orphanAge it was left by
	// a publisher that died between the two; in a folder, it may be another run's.
	sweep = sweep && p.config.Dir == ""
	keep, named := neededHashes(history, p.keep), map[string]bool{}
	for _, h := range history {
		for _, s := range h.AllShards() {
			named[s.Hash] = true
		}
	}
	for hash, age := range present {
		orphan := sweep && age >= orphanAge
		if !keep[hash] && (named[hash] || orphan) {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}
