package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// WeightsConfig says where shards are kept and how they are sent.
type WeightsConfig struct {
	// Dir is a folder that the trainer and all inference consumers share, on one machine or a shared file system. Shards
	// are then files in it and the broker carries manifests alone. "" keeps them in the broker.
	Dir string `koanf:"dir"`
	// BaseEvery is how often whole weights are published; the versions between are deltas, each against the version before. 1
	// publishes every version whole. A consumer that joins late reads up to BaseEvery versions. At most 32.
	BaseEvery int `koanf:"base_every"`
}

// DefaultWeightsConfig keeps whole weights in the broker.
func DefaultWeightsConfig() WeightsConfig { return WeightsConfig{BaseEvery: 1} }

// maxBaseEvery leaves room in the history for the kept versions and their bases.
const maxBaseEvery = weightsHistory / 2

// Validate reports every fault of the configuration.
func (c WeightsConfig) Validate() error {
	return check.Between("base_every", c.BaseEvery, 1, maxBaseEvery)
}

// Weights publishes and reads policy versions. It is safe for concurrent use, one publish or load at a time. With deltas it goes
// on from the version that it published or read last: a reader holds a whole copy of that version's weights, a publisher asks its
// source for that version's shards again.
type Weights struct {
	run    *Run
	config WeightsConfig
	store  shardStore

	mu     sync.Mutex
	held   *schemas.Manifest // the version that the next delta is against; nil if there is none
	base   ShardSource       // its whole shards
	own    bool              // nobody else writes to the memory of base
	length int               // of the chain of bases that held ends; 1 where held is whole
	swept  time.Time
	// spool is a folder for deltas until they are stored; "" is that of the shards, or the system's own.
	spool string
	// frozen are the frozen shards of the version that Load read last, by their hashes.
	frozen map[string][]byte
	// seen has the stamp of each file that Files has verified, by path.
	seen sync.Map
}

// orphanAge is how long a put may be under way. Older shards that no manifest names count as orphans.
const orphanAge = 10 * time.Minute

// sweepEvery is how often a publisher looks for orphans.
const sweepEvery = time.Minute

// Weights is a publisher and reader of the run's policy versions.
func (r *Run) Weights(config WeightsConfig) (*Weights, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure weights: %w", err)
	}
	return r.newWeights(config), nil
}

func (r *Run) newWeights(config WeightsConfig) *Weights {
	w := &Weights{run: r, config: config, store: objectShards{run: r}}
	if config.Dir != "" {
		w.store = folderShards{dir: config.Dir}
	}
	return w
}

// Publish makes a policy version visible: first its shards, where they are not stored yet, then the manifest. shards holds the bytes
// of each whole shard of m, and of each frozen one, by its hash. As configured, deltas are stored instead where they are smaller, and the manifest that
// readers get names the deltas; m is not changed.
//
// Publishing the same weights of a version again succeeds. It stores the whole shards that the store lacks, as when the run goes on
// with another Dir, and changes nothing else. Publish fails with [ErrFenced] if the version is published with other weights or a
// newer version is published, and with [ErrCorruptShard] if shards are not those that m names. Versions that are no longer kept,
// and shards that no kept version needs, are removed.
//
// Invariant: a manifest is visible only when all its shards are.
// Invariant: published versions only rise, whoever publishes.
// Invariant: no shard that a kept version needs is removed.
func (w *Weights) Publish(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) error {
	if err := w.run.own(m.Run, m.Validate()); err != nil {
		return err
	}
	own := *m
	own.Shards = slices.Clone(m.Shards)
	all := m.AllShards()
	whole := make([][]byte, len(all))
	for i, s := range all {
		data := shards[s.Hash]
		if err := verify(s, int64(len(data)), schemas.ContentHash(data)); err != nil {
			return err
		}
		whole[i] = data
		if w.config.BaseEvery > 1 {
			whole[i] = slices.Clone(whole[i]) // the base of the next delta, while the caller may write to its own copy
		}
	}
	return w.publish(ctx, &own, func(i int) (Blob, error) { return Bytes(whole[i]), nil }, true)
}

// shardsAlive bounds how many shards are asked for and not yet stored.
func shardsAlive() int { return min(runtime.GOMAXPROCS(0), 4) }

// SpoolIn names a folder for what lies on the disk while a version is published.
func (w *Weights) SpoolIn(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spool = dir
}

// PublishFrom is [Weights.Publish] of shards that are read in pieces, hashed and stored, a few side by side, so that some
// megabytes of them are in memory, however large a shard is. Deltas wait on the disk until all are made: see [Weights.SpoolIn].
// The caller sets the encoding of each shard of m, and the size where it is known: where all sizes are known, at most half of
// the bytes are ever made into deltas. PublishFrom sets the rest.
//
// Where m is an adapter, the source has the frozen shards after its own. They are stored once: as long as the newest version names
// the same, by their hashes, they are not asked for. PublishFrom puts a copy of m.Adapter that has the hashes into m, which the next version may name.
//
// With deltas the source is called again when the next version is published: its shards are the base of those deltas. Where the
// source then fails, or gives other bytes, the next version is published whole.
func (w *Weights) PublishFrom(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	return w.publish(ctx, m, source, false)
}

// publish is PublishFrom. own is whether the source's bytes stay as they are and the shards of m name them already.
func (w *Weights) publish(ctx context.Context, m *schemas.Manifest, source ShardSource, own bool) error {
	if m.Base != schemas.NoBase {
		return fmt.Errorf("%w: manifest.base: %d: whole weights are published; deltas are made here", schemas.ErrInvalid, m.Base)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		published, err := w.publishOnce(ctx, m, source, own)
		if err != nil {
			return fmt.Errorf("publish version %d: %w", m.Version, err)
		}
		if published {
			return nil
		}
	}
}

// publishOnce reports false when another publisher has written the manifest in between.
func (w *Weights) publishOnce(ctx context.Context, m *schemas.Manifest, source ShardSource, own bool) (bool, error) {
	history, latest, revision, err := w.published(ctx)
	if err != nil {
		return false, err
	}
	if latest != nil && m.Version <= latest.Version {
		return true, w.publishAgain(ctx, m, source, own, history, latest)
	}
	long := sized(m)
	if err := w.run.own(long.Run, long.Validate()); err != nil {
		return false, err
	}
	if err := w.run.ManifestFits(long); err != nil {
		return false, err
	}
	if err := w.storeFrozen(ctx, m, latest, source); err != nil {
		return false, err
	}
	stored, blobs, length := m, source, 1
	spooled, deltas, err := w.deltas(ctx, m, source, own, latest)
	if err != nil {
		return false, err
	}
	defer spooled.remove()
	if deltas != nil {
		stored, blobs, length = deltas, spooled.open, w.length+1
		err = w.each(ctx, stored, blobs, true)
	} else {
		err = w.each(ctx, m, source, own)
	}
	if err != nil {
		return false, err
	}
	if ok, err := w.run.setManifest(ctx, stored, revision); err != nil || !ok {
		return false, err
	}
	if w.config.BaseEvery > 1 {
		w.hold(stored, source, own, length)
	}
	w.tidy(ctx, stored, blobs, source, append([]*schemas.Manifest{stored}, history...))
	return true, nil
}

// publishAgain stores the whole shards of a version that is published already, in a history that ends with latest. It fails with
// ErrFenced if the version is published with other weights, or a newer version is published.
func (w *Weights) publishAgain(ctx context.Context, m *schemas.Manifest, source ShardSource, own bool, history []*schemas.Manifest, latest *schemas.Manifest) error {
	if !own {
		if err := w.names(ctx, m, source); err != nil {
			return err
		}
	}
	h, err := publishedAs(history, m, latest)
	if err != nil {
		return err
	}
	if err := w.storeFrozen(ctx, m, nil, source); err != nil {
		return err
	}
	return parallel(ctx, len(m.Shards), func(i int) error {
		if h.Shards[i].Hash != m.Shards[i].Hash {
			return nil // stored as a delta
		}
		return w.storeOne(ctx, m, source, i, true)
	})
}

// parallel calls do for each of n shards, a few at a time, until one fails or ctx ends.
func parallel(ctx context.Context, n int, do func(i int) error) error {
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

// each stores the shards of m. Unless they are named already it finds their names and writes them into m.
func (w *Weights) each(ctx context.Context, m *schemas.Manifest, source ShardSource, named bool) error {
	err := parallel(ctx, len(m.Shards), func(i int) error { return w.storeOne(ctx, m, source, i, named) })
	if err != nil {
		return err
	}
	return w.run.own(m.Run, m.Validate())
}

// storeOne stores one shard.
func (w *Weights) storeOne(ctx context.Context, m *schemas.Manifest, source ShardSource, i int, named bool) error {
	hash := ""
	if named {
		hash = m.Shards[i].Hash
	}
	s, err := w.put(ctx, hash, source, i)
	if err == nil && !named {
		name(&m.Shards[i], s.Hash, s.Size)
	}
	return err
}

// names finds the names of the shards of m and stores nothing.
func (w *Weights) names(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	err := parallel(ctx, len(m.Shards), func(i int) error {
		blob, err := source(i)
		if err != nil {
			return fmt.Errorf("read shard %d: %w", i, err)
		}
		defer func() { _ = blob.Close() }() // read only
		hash, err := hashOf(ctx, blob)
		if err != nil {
			return fmt.Errorf("read shard %d: %w", i, err)
		}
		name(&m.Shards[i], hash, blob.Size())
		return nil
	})
	if err == nil {
		err = w.nameFrozen(ctx, m, source)
	}
	if err != nil {
		return err
	}
	return w.run.own(m.Run, m.Validate())
}

// name sets the hash and the size of a whole shard.
func name(s *schemas.Shard, hash string, size int64) { s.Hash, s.FullHash, s.Size = hash, hash, size }

// sized is m with hashes and sizes that are as long on the wire as any.
func sized(m *schemas.Manifest) *schemas.Manifest {
	long := *m
	long.Shards = slices.Clone(m.Shards)
	for i := range long.Shards {
		name(&long.Shards[i], schemas.ContentHash(nil), math.MaxInt64)
	}
	if m.Adapter != nil {
		a := *m.Adapter
		a.Frozen = slices.Clone(a.Frozen)
		for i := range a.Frozen {
			name(&a.Frozen[i], schemas.ContentHash(nil), math.MaxInt64)
		}
		long.Adapter = &a
	}
	return &long
}

// published is the manifests of the bucket, newest first; the newest that can be read, nil where none can; and the revision that the
// next manifest must name. A newest value that is no manifest is written over.
func (w *Weights) published(ctx context.Context) (history []*schemas.Manifest, latest *schemas.Manifest, revision uint64, err error) {
	if history, err = w.run.manifests(ctx); err != nil {
		return nil, nil, 0, err
	}
	latest, revision, err = w.run.latestManifest(ctx)
	switch {
	case errors.Is(err, schemas.ErrMalformed) || errors.Is(err, schemas.ErrInvalid):
		if latest = nil; len(history) > 0 {
			latest = history[0]
		}
	case err != nil && !errors.Is(err, ErrNoWeights):
		return nil, nil, 0, err
	}
	return history, latest, revision, nil
}

// publishedAs is the manifest under which the weights of m are published already, in a history that ends with latest; ErrFenced if
// the version is published with other weights, or a newer version is published.
func publishedAs(history []*schemas.Manifest, m, latest *schemas.Manifest) (*schemas.Manifest, error) {
	for _, h := range history {
		if h.Version == m.Version && sameWeights(h, m) {
			return h, nil
		}
	}
	return nil, fmt.Errorf("%w: version %d is published, and not these weights", ErrFenced, latest.Version)
}

// setManifest publishes if revision is still the newest. It also reports false where an earlier attempt was carried out and its
// answer was lost; the caller then finds its own version.
func (r *Run) setManifest(ctx context.Context, m *schemas.Manifest, revision uint64) (bool, error) {
	data, err := schemas.Marshal(m)
	if err != nil {
		return false, err
	}
	return r.replace(ctx, r.names.weights, manifestKey, data, revision)
}

// sameWeights is whether two manifests of a version hold the same tensors, however they are stored.
func sameWeights(a, b *schemas.Manifest) bool {
	return a.ConfigHash == b.ConfigHash && a.TokenizerHash == b.TokenizerHash && a.DType == b.DType && sameFrozen(a, b) &&
		slices.EqualFunc(a.Shards, b.Shards, func(x, y schemas.Shard) bool { return x.FullHash == y.FullHash })
}

// tidy removes the shards that no kept version needs, and stores those shards of m again that another publisher's tidy has removed
// meanwhile. The next publish does what fails here.
func (w *Weights) tidy(ctx context.Context, m *schemas.Manifest, blob, whole ShardSource, history []*schemas.Manifest) {
	log := w.run.log.With("version", m.Version)
	present, err := w.store.list(ctx)
	if err == nil {
		err = w.run.held(ctx)
	}
	if err != nil {
		log.Warn("old shards not removed", "err", err)
		return
	}
	for i, s := range m.AllShards() {
		if i >= len(m.Shards) {
			blob = whole // deltas are of a version's own shards alone
		}
		if _, there := present[s.Hash]; !there {
			_, err := w.put(ctx, s.Hash, blob, i)
			if err != nil {
				log.Error("a shard of the newest version was removed by another publisher", "shard", s.Hash, "err", err)
			}
		}
	}
	sweep := time.Since(w.swept) >= sweepEvery
	if sweep {
		if err := w.store.sweep(ctx, orphanAge); err != nil {
			log.Warn("unfinished shards not removed", "err", err)
		}
		w.swept = time.Now()
	}
	// A shard that no manifest names may be another publisher's, whose manifest is about to follow. After orphanAge it was left by
	// a publisher that died between the two; in a folder, it may be another run's.
	sweep = sweep && w.config.Dir == ""
	keep, named := needed(history, max(w.run.topology.WeightsKeep, 1)), map[string]bool{}
	for _, h := range history {
		for _, s := range h.AllShards() {
			named[s.Hash] = true
		}
	}
	for hash, since := range present {
		if orphan := sweep && time.Since(since) >= orphanAge; keep[hash] || !named[hash] && !orphan {
			continue
		}
		if err := w.store.remove(ctx, hash); err != nil {
			log.Warn("old shard not removed", "shard", hash, "err", err)
		}
	}
}
