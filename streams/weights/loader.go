package weights

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/delta"
)

// Loader reads the weights of policy versions, into memory or into the files of a folder. It is safe for concurrent use, a single load at
// a time. After a delta it holds a whole copy of the weights that it read last.
type Loader struct {
	Folder

	mu sync.Mutex
	// held is the version that was read last, nil where there is none, and whole its whole shards.
	held  *schemas.Manifest
	whole [][]byte
	// keepsHeld is whether versions may be deltas.
	keepsHeld bool
	// frozen are the frozen shards of the version that was read last, by their hashes.
	frozen map[string][]byte
}

// NewLoader is a reader of the run's policy versions. The error is of [Config.Validate].
func NewLoader(run *streams.Run, config Config) (*Loader, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure weights: %w", err)
	}
	s := run.Seam()
	return &Loader{Folder: Folder{run: s, store: newShardStore(s, config)}, keepsHeld: config.BaseEvery > 1}, nil
}

// Shard reads the stored bytes of a shard and verifies them. It fails with [streams.ErrNoShard] if they are no longer kept, and with
// [streams.ErrCorruptShard] if they do not have the hash that names them.
func (l *Loader) Shard(ctx context.Context, shard schemas.Shard) ([]byte, error) {
	to := &inMemory{data: make([]byte, 0, shard.Size)}
	if err := l.store.readShard(ctx, shard, to); err != nil {
		return nil, err
	}
	return to.data, verifyShard(shard, int64(len(to.data)), to.contentHash())
}

// Load reads the whole weights of a version: the safetensors bytes of m.AllShards() in their order, decoded and verified
// against FullHash. The weights that an adapter is added to stay in memory, and are not read again for the next version. Where the
// version is a delta against the version loaded before, only the delta is read; otherwise the chain is read from its whole base. The
// bytes are shared with later loads and must not be changed. Load fails with [streams.ErrNoShard] or [streams.ErrNoWeights] if the
// version, or a base of it, is no longer kept, and with [streams.ErrCorruptShard].
//
// Invariant: every loaded byte was verified against the manifest.
func (l *Loader) Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, err := l.loadOwn(ctx, m)
	if err != nil {
		return nil, err
	}
	frozen, err := l.frozenShards(ctx, m)
	return append(own, frozen...), err
}

// loadOwn reads a version's own shards.
func (l *Loader) loadOwn(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	if l.held != nil && l.held.Version == m.Version && sameWeights(l.held, m) {
		return slices.Clone(l.whole), nil
	}
	links := []*schemas.Manifest{m}
	if m.Base != schemas.NoBase {
		if l.held != nil && l.held.Version == m.Base {
			whole, err := l.loadLinks(ctx, m, links, l.whole)
			if !errors.Is(err, streams.ErrCorruptShard) {
				return whole, err
			}
			// The base may have been published anew with other weights than are held: the chain is read from its whole base.
		}
		history, err := l.run.Manifests(ctx)
		if err != nil {
			return nil, err
		}
		if links, err = chainOf(m, history); err != nil {
			return nil, fmt.Errorf("load version %d: %w", m.Version, err)
		}
	}
	return l.loadLinks(ctx, m, links, nil)
}

// loadLinks reads a version by its links, newest first, from the whole shards of the base of the last where that is a delta.
func (l *Loader) loadLinks(ctx context.Context, m *schemas.Manifest, links []*schemas.Manifest, whole [][]byte) ([][]byte, error) {
	for _, link := range slices.Backward(links) {
		next, err := l.loadLink(ctx, link, whole)
		if err != nil {
			return nil, fmt.Errorf("load version %d: version %d: %w", m.Version, link.Version, err)
		}
		whole = next
	}
	if m.Base != schemas.NoBase || l.keepsHeld {
		l.held, l.whole = m, whole
	}
	return slices.Clone(whole), nil
}

// frozenShards are the bytes of the frozen shards of m, none where it is no adapter. They stay in memory for the versions to come.
func (l *Loader) frozenShards(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	if m.Adapter == nil {
		return nil, nil
	}
	have := map[string][]byte{}
	out := make([][]byte, len(m.Adapter.Frozen))
	err := eachShard(ctx, len(out), func(i int) (err error) {
		s := m.Adapter.Frozen[i]
		if out[i] = l.frozen[s.Hash]; out[i] == nil {
			out[i], err = l.Shard(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load what the adapter of version %d is added to: %w", m.Version, err)
	}
	for i, s := range m.Adapter.Frozen {
		have[s.Hash] = out[i]
	}
	l.frozen = have
	return out, nil
}

// loadLink reads one version, from the whole shards of the version before where it is a delta. As many shards are read and verified at
// once as there are processors: hashing and decoding take most of the time.
func (l *Loader) loadLink(ctx context.Context, m *schemas.Manifest, base [][]byte) ([][]byte, error) {
	whole := make([][]byte, len(m.Shards))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range m.Shards {
		group.Go(func() (err error) {
			if s.Encoding == schemas.EncodingDelta && i >= len(base) {
				return fmt.Errorf("%w: %s: a delta without its base", streams.ErrCorruptShard, s.Hash)
			}
			if whole[i], err = l.Shard(ctx, s); err == nil && s.Encoding == schemas.EncodingDelta {
				whole[i], err = applyDelta(s, base[i], whole[i])
			}
			return err
		})
	}
	return whole, group.Wait()
}

// applyDelta is the whole shard that a delta stands for, verified.
func applyDelta(s schemas.Shard, base, stored []byte) ([]byte, error) {
	data, err := delta.Decode(base, stored)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", streams.ErrCorruptShard, s.Hash, err)
	}
	if hash := schemas.ContentHash(data); hash != s.FullHash {
		return nil, fmt.Errorf("%w: %s: decodes to %s, the manifest says %s", streams.ErrCorruptShard, s.Hash, hash, s.FullHash)
	}
	return data, nil
}
