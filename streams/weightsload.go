package streams

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/delta"
)

// Shard reads the stored bytes of one shard and verifies them. It fails with [ErrNoShard] if they are no longer kept, and with
// [ErrCorruptShard] if they do not have the hash that names them.
func (w *Weights) Shard(ctx context.Context, shard schemas.Shard) ([]byte, error) {
	to := &inMemory{data: make([]byte, 0, shard.Size)}
	if err := w.store.get(ctx, shard, to); err != nil {
		return nil, err
	}
	return to.data, verify(shard, int64(len(to.data)), to.sum())
}

// Load reads the whole weights of a version: the safetensors bytes of m.AllShards() in their order, decoded and verified
// against FullHash. What an adapter is added to stays in memory, and is not read again for the next version. Where the version is a delta against the version loaded before, only the delta is read; otherwise the chain is
// read from its whole base. The bytes are shared with later loads and must not be changed. Load fails with [ErrNoShard] or
// [ErrNoWeights] if the version, or a base of it, is no longer kept, and with [ErrCorruptShard].
//
// Invariant: every loaded byte was verified against the manifest.
func (w *Weights) Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, err := w.load(ctx, m)
	if err != nil {
		return nil, err
	}
	frozen, err := w.frozenShards(ctx, m)
	return append(own, frozen...), err
}

// load reads a version's own shards.
func (w *Weights) load(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	// The held version may be the version itself, or its base.
	var whole [][]byte
	if w.held != nil && (w.held.Version == m.Version && sameWeights(w.held, m) || w.held.Version == m.Base) {
		whole = w.heldWhole(ctx)
	}
	if whole != nil && w.held.Version == m.Version {
		return whole, nil
	}
	links := []*schemas.Manifest{m}
	if m.Base != schemas.NoBase && whole == nil {
		history, err := w.run.manifests(ctx)
		if err != nil {
			return nil, err
		}
		if links, err = chain(m, history); err != nil {
			return nil, fmt.Errorf("load version %d: %w", m.Version, err)
		}
	}
	for _, link := range slices.Backward(links) {
		next, err := w.step(ctx, link, whole)
		if err != nil {
			return nil, fmt.Errorf("load version %d: version %d: %w", m.Version, link.Version, err)
		}
		whole = next
	}
	if m.Base != schemas.NoBase || w.config.BaseEvery > 1 {
		held := whole
		w.hold(m, func(i int) (Blob, error) { return Bytes(held[i]), nil }, true, len(links))
		if links[len(links)-1].Base != schemas.NoBase {
			// The length of the chain below is not known; a publisher that loads begins a new chain.
			w.length = w.config.BaseEvery
		}
	}
	return slices.Clone(whole), nil
}

// heldWhole are the whole shards of the held version; nil where their source no longer has them.
func (w *Weights) heldWhole(ctx context.Context) [][]byte {
	whole := make([][]byte, len(w.held.Shards))
	for i := range whole {
		data, err := w.heldShard(ctx, i)
		if err != nil {
			w.run.log.Debug("the version published last is read from the store", "version", w.held.Version, "err", err)
			return nil
		}
		whole[i] = data
	}
	return whole
}

// heldShard is a whole shard of the held version, verified against its hash.
func (w *Weights) heldShard(ctx context.Context, i int) ([]byte, error) {
	blob, err := w.base(i)
	if err != nil {
		return nil, fmt.Errorf("read shard %d of version %d again: %w", i, w.held.Version, err)
	}
	defer func() { _ = blob.Close() }() // read only
	data, err := bytesOf(ctx, blob)
	if err == nil && !w.own && schemas.ContentHash(data) != w.held.Shards[i].FullHash {
		err = fmt.Errorf("shard %d of version %d has changed since it was published", i, w.held.Version)
	}
	return data, err
}

// step reads one version, from the whole shards of the version before where it is a delta. As many shards are read and verified at
// once as there are processors: hashing and decoding take most of the time.
func (w *Weights) step(ctx context.Context, m *schemas.Manifest, base [][]byte) ([][]byte, error) {
	whole := make([][]byte, len(m.Shards))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range m.Shards {
		group.Go(func() (err error) {
			if s.Encoding == schemas.EncodingDelta && i >= len(base) {
				return fmt.Errorf("%w: %s: a delta without its base", ErrCorruptShard, s.Hash)
			}
			if whole[i], err = w.Shard(ctx, s); err == nil && s.Encoding == schemas.EncodingDelta {
				whole[i], err = undo(s, base[i], whole[i])
			}
			return err
		})
	}
	return whole, group.Wait()
}

// undo is the whole shard that a delta stands for, verified.
func undo(s schemas.Shard, base, stored []byte) ([]byte, error) {
	data, err := delta.Decode(base, stored)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorruptShard, s.Hash, err)
	}
	if hash := schemas.ContentHash(data); hash != s.FullHash {
		return nil, fmt.Errorf("%w: %s: decodes to %s, the manifest says %s", ErrCorruptShard, s.Hash, hash, s.FullHash)
	}
	return data, nil
}
