package streams

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/delta"
)

// WeightsConfig says where shards are kept and how they are sent.
type WeightsConfig struct {
	// Dir is a folder that the trainer and all inference consumers share, on one machine or a shared file system. Shards
	// are then files in it and the broker carries manifests alone. "" keeps them in the broker.
	Dir string `koanf:"dir"`
	// BaseEvery is how often whole weights are published; the versions between are deltas against the one before. 1 is
	// always whole. A late joiner reads up to BaseEvery versions. At most 32.
	BaseEvery int `koanf:"base_every"`
}

// DefaultWeightsConfig keeps whole weights in the broker.
func DefaultWeightsConfig() WeightsConfig { return WeightsConfig{BaseEvery: 1} }

// maxBaseEvery leaves room in the history for the versions kept and what they stand on.
const maxBaseEvery = weightsHistory / 2

// Validate reports every fault of the configuration.
func (c WeightsConfig) Validate() error {
	if c.BaseEvery < 1 || c.BaseEvery > maxBaseEvery {
		return fmt.Errorf("base_every: %d: must be in [1, %d]", c.BaseEvery, maxBaseEvery)
	}
	return nil
}

// Weights publishes and reads policy versions. It is safe for concurrent use, one publish or load at a time. With
// deltas it holds one whole copy of the weights.
type Weights struct {
	run    *Run
	config WeightsConfig
	store  shardStore

	mu     sync.Mutex
	held   *schemas.Manifest // of the bytes below; nil if none are held
	whole  [][]byte          // by shard index, decoded
	length int               // of held's chain: 1 is whole
	swept  time.Time
}

// orphanAge is how long a put may be under way before what it left counts as left behind.
const orphanAge = 10 * time.Minute

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

// PublishWeights publishes whole weights through the broker: [Weights.Publish] with the default configuration.
func (r *Run) PublishWeights(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) error {
	return r.newWeights(DefaultWeightsConfig()).Publish(ctx, m, shards)
}

// Shard reads the stored bytes of one shard from the broker and verifies them: [Weights.Shard].
func (r *Run) Shard(ctx context.Context, shard schemas.Shard) ([]byte, error) {
	return r.newWeights(DefaultWeightsConfig()).Shard(ctx, shard)
}

// Publish makes a policy version visible: first its shards, where they are not stored yet, then the manifest. shards
// holds the bytes of each whole shard of m by its hash. As configured, deltas are stored instead where they are
// smaller, and the manifest that readers see says so; m is not changed.
//
// Publishing the same weights of a version again succeeds. It stores those whole shards that the store lacks, as it does
// when the run goes on with another Dir, and changes nothing else. Publish fails with [ErrFenced] if
// the version is taken by other weights or a newer one is published, and with [ErrCorruptShard] if shards are not m's.
// Versions that are no longer kept, and shards that none of the kept needs, are removed.
//
// Invariant: a manifest is visible only when all its shards are.
// Invariant: published versions only rise, whoever publishes.
// Invariant: no shard that a kept version needs is removed.
func (w *Weights) Publish(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) error {
	if err := w.run.own(m.Run, m.Validate()); err != nil {
		return err
	}
	if m.Base != schemas.NoBase {
		return fmt.Errorf("%w: manifest.base: %d: whole weights are published; deltas are made here", schemas.ErrInvalid, m.Base)
	}
	for _, s := range m.Shards {
		if err := verify(s, shards[s.Hash]); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		published, err := w.publishOnce(ctx, m, shards)
		if err != nil {
			return fmt.Errorf("publish version %d: %w", m.Version, err)
		}
		if published {
			return nil
		}
	}
}

// ShardSource encodes the i-th whole shard of a version. It may be called again for the same shard, and for several at
// once; what it returns is the caller's.
type ShardSource func(i int) ([]byte, error)

// shardsAlive bounds how many shards are encoded and not yet stored.
func shardsAlive() int { return min(runtime.GOMAXPROCS(0), 4) }

// PublishFrom is [Weights.Publish] of shards that are encoded, hashed, stored and let go of one by one, so that a whole
// copy of their bytes is never held, but for deltas. m has a shard for each, of which the encoding alone is set;
// PublishFrom sets the rest.
func (w *Weights) PublishFrom(ctx context.Context, m *schemas.Manifest, source ShardSource) error {
	if m.Base != schemas.NoBase {
		return fmt.Errorf("%w: manifest.base: %d: whole weights are published; deltas are made here", schemas.ErrInvalid, m.Base)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		var published bool
		var err error
		if w.config.BaseEvery == 1 {
			published, err = w.streamOnce(ctx, m, source)
		} else {
			shards := make([][]byte, len(m.Shards))
			keep := func(i int, data []byte) error { shards[i] = data; return nil }
			if err = w.encoded(ctx, m, source, keep); err == nil {
				published, err = w.publishOnce(ctx, m, byHash(m, shards))
			}
		}
		if err != nil {
			return fmt.Errorf("publish version %d: %w", m.Version, err)
		}
		if published {
			return nil
		}
	}
}

// encoded calls the source for each shard, notes its name in m, and hands its bytes over, a few shards at a time.
func (w *Weights) encoded(ctx context.Context, m *schemas.Manifest, source ShardSource, each func(i int, data []byte) error) error {
	var group errgroup.Group
	group.SetLimit(shardsAlive())
	for i := range m.Shards {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			data, err := source(i)
			if err != nil {
				return fmt.Errorf("encode shard %d: %w", i, err)
			}
			s := &m.Shards[i]
			s.Hash, s.Size = hashOf(data), int64(len(data))
			s.FullHash = s.Hash
			return each(i, data)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.run.own(m.Run, m.Validate())
}

func byHash(m *schemas.Manifest, shards [][]byte) map[string][]byte {
	out := make(map[string][]byte, len(shards))
	for i, s := range m.Shards {
		out[s.Hash] = shards[i]
	}
	return out
}

// streamOnce is publishOnce for whole weights from a source.
func (w *Weights) streamOnce(ctx context.Context, m *schemas.Manifest, source ShardSource) (bool, error) {
	history, latest, revision, err := w.published(ctx)
	if err != nil {
		return false, err
	}
	if latest != nil && m.Version <= latest.Version {
		if err := w.encoded(ctx, m, source, func(int, []byte) error { return nil }); err != nil {
			return false, err
		}
		h, err := publishedAs(history, m, latest)
		if err != nil {
			return false, err
		}
		return true, w.encoded(ctx, m, source, func(i int, data []byte) error {
			if h.Shards[i].Hash != m.Shards[i].Hash {
				return nil // stored as a delta
			}
			return w.store.put(ctx, m.Shards[i].Hash, data)
		})
	}
	err = w.encoded(ctx, m, source, func(i int, data []byte) error { return w.store.put(ctx, m.Shards[i].Hash, data) })
	if err != nil {
		return false, err
	}
	if ok, err := w.run.setManifest(ctx, m, revision); err != nil || !ok {
		return false, err
	}
	w.tidy(ctx, m, source, append([]*schemas.Manifest{m}, history...))
	return true, nil
}

// published is what the bucket holds, newest first, the newest that can be read, nil without one, and the revision that the next
// manifest must name. What stands in the newest's place and is no manifest is written over.
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

// publishedAs is the manifest under which the weights of m are published already, of a history that ends with latest;
// ErrFenced if the version, or a newer one, is of others.
func publishedAs(history []*schemas.Manifest, m, latest *schemas.Manifest) (*schemas.Manifest, error) {
	for _, h := range history {
		if h.Version == m.Version && sameWeights(h, m) {
			return h, nil
		}
	}
	return nil, fmt.Errorf("%w: version %d is published, and not these weights", ErrFenced, latest.Version)
}

// publishOnce reports false when another publisher came between.
func (w *Weights) publishOnce(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) (bool, error) {
	history, latest, revision, err := w.published(ctx)
	if err != nil {
		return false, err
	}
	if latest != nil && m.Version <= latest.Version {
		h, err := publishedAs(history, m, latest)
		if err != nil {
			return false, err
		}
		return true, w.putBack(ctx, h, shards)
	}

	stored, blobs, length := w.encode(m, shards, latest)
	if err := w.run.ManifestFits(stored); err != nil {
		return false, err
	}
	for _, s := range stored.Shards {
		if err := w.store.put(ctx, s.Hash, blobs[s.Hash]); err != nil {
			return false, err
		}
	}
	if ok, err := w.run.setManifest(ctx, stored, revision); err != nil || !ok {
		return false, err
	}
	w.hold(stored, shards, m, length)
	w.tidy(ctx, stored, func(i int) ([]byte, error) { return blobs[stored.Shards[i].Hash], nil }, append([]*schemas.Manifest{stored}, history...))
	return true, nil
}

// putBack stores the shards of a published version that are stored whole.
func (w *Weights) putBack(ctx context.Context, m *schemas.Manifest, shards map[string][]byte) error {
	for _, s := range m.Shards {
		if data, whole := shards[s.Hash]; whole {
			if err := w.store.put(ctx, s.Hash, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// setManifest publishes if revision is still the newest. It reports false too for an attempt that was carried out and
// not answered; the caller then finds its own version.
func (r *Run) setManifest(ctx context.Context, m *schemas.Manifest, revision uint64) (bool, error) {
	data, err := schemas.Marshal(m)
	if err != nil {
		return false, err
	}
	return r.replace(ctx, r.names.weights, manifestKey, data, revision)
}

// sameWeights is whether two manifests of a version hold the same tensors, however they are stored.
func sameWeights(a, b *schemas.Manifest) bool {
	return a.ConfigHash == b.ConfigHash && a.TokenizerHash == b.TokenizerHash && a.DType == b.DType &&
		slices.EqualFunc(a.Shards, b.Shards, func(x, y schemas.Shard) bool { return x.FullHash == y.FullHash })
}

// encode is m as it is to be stored, its bytes by hash, and the length of its chain: deltas against the newest version
// where this publisher holds that, the chain is short enough, and they are smaller.
func (w *Weights) encode(m *schemas.Manifest, shards map[string][]byte, latest *schemas.Manifest) (*schemas.Manifest, map[string][]byte, int) {
	if w.config.BaseEvery == 1 || latest == nil || w.held == nil || w.held.Version != latest.Version ||
		!sameWeights(w.held, latest) || w.length >= w.config.BaseEvery || len(w.whole) != len(m.Shards) {
		return m, shards, 1
	}
	deltas := make([][]byte, len(m.Shards))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range m.Shards {
		group.Go(func() (err error) {
			deltas[i], err = delta.Encode(w.whole[i], shards[s.Hash], elementSize(m.DType))
			return err
		})
	}
	if group.Wait() != nil {
		return m, shards, 1 // another shape: it has no delta
	}
	stored := *m
	stored.Base = latest.Version
	stored.Shards = slices.Clone(m.Shards)
	blobs := make(map[string][]byte)
	before, after := 0, 0
	for i, blob := range deltas {
		s := &stored.Shards[i]
		before, after = before+int(s.Size), after+len(blob)
		*s = schemas.Shard{Hash: hashOf(blob), Size: int64(len(blob)), Encoding: schemas.EncodingDelta, FullHash: s.FullHash}
		blobs[s.Hash] = blob
	}
	if after > before/2 {
		// Not worth the longer way of every reader.
		return m, shards, 1
	}
	return &stored, blobs, w.length + 1
}

func elementSize(dtype string) int {
	if dtype == "bfloat16" {
		return 2
	}
	return 4
}

// hold keeps a copy of the whole weights as the base of the next delta.
func (w *Weights) hold(stored *schemas.Manifest, shards map[string][]byte, m *schemas.Manifest, length int) {
	if w.config.BaseEvery == 1 {
		return
	}
	w.held, w.length = stored, length
	if len(w.whole) != len(m.Shards) {
		w.whole = make([][]byte, len(m.Shards))
	}
	for i, s := range m.Shards {
		// A load may have handed the old memory out, so it is not written to again.
		w.whole[i] = slices.Clone(shards[s.Hash])
	}
}

// tidy removes what no kept version needs, and puts back what another publisher's tidying took from under the
// manifest just set. What it cannot do now the next publish does.
func (w *Weights) tidy(ctx context.Context, m *schemas.Manifest, blob ShardSource, history []*schemas.Manifest) {
	log := w.run.log.With("version", m.Version)
	present, err := w.store.list(ctx)
	if err == nil {
		err = w.run.held(ctx)
	}
	if err != nil {
		log.Warn("old shards not removed", "err", err)
		return
	}
	for i, s := range m.Shards {
		if _, there := present[s.Hash]; !there {
			data, err := blob(i)
			if err == nil {
				err = w.store.put(ctx, s.Hash, data)
			}
			if err != nil {
				log.Error("a shard of the newest version was removed by another publisher", "shard", s.Hash, "err", err)
			}
		}
	}
	sweep := time.Since(w.swept) >= orphanAge
	if sweep {
		if err := w.store.sweep(ctx, orphanAge); err != nil {
			log.Warn("unfinished shards not removed", "err", err)
		}
		w.swept = time.Now()
	}
	// An unknown shard may be another publisher's, put and not yet named by its manifest. One that nobody has named for so
	// long is what a publisher left that died between the two; in a folder, it may be another run's.
	sweep = sweep && w.config.Dir == ""
	keep, named := needed(history, max(w.run.topology.WeightsKeep, 1)), map[string]bool{}
	for _, h := range history {
		for _, s := range h.Shards {
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
