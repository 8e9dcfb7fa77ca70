package streams

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/delta"
)

// errNoDelta ends the making of deltas that together are not much smaller than the whole shards.
var errNoDelta = errors.New("deltas are not worth it")

// deltas are m as deltas against the newest version, as files: nil where this publisher does not hold that version, where
// the chain is long enough, where the whole shards are not twice as large, or where a shard or its base could not be read. It
// fails only where ctx ends. What is spooled is to be removed in any case.
func (w *Weights) deltas(ctx context.Context, m *schemas.Manifest, source ShardSource, own bool, latest *schemas.Manifest) (*spooled, *schemas.Manifest, error) {
	if w.config.BaseEvery == 1 || latest == nil || w.held == nil || w.held.Version != latest.Version ||
		!sameWeights(w.held, latest) || !sameFrozen(w.held, m) || w.length >= w.config.BaseEvery || len(w.held.Shards) != len(m.Shards) {
		return nil, nil, nil
	}
	known := int64(0)
	for _, s := range m.Shards {
		known += s.Size
	}
	most := newRoom(known / 2)
	stored := *m
	stored.Base = latest.Version
	stored.Shards = make([]schemas.Shard, len(m.Shards))
	spool, err := w.newSpool()
	var whole atomic.Int64
	if err == nil {
		err = parallel(ctx, len(m.Shards), func(i int) error {
			next, err := source(i)
			if err != nil {
				return err
			}
			defer func() { _ = next.Close() }() // read only
			whole.Add(next.Size())
			stored.Shards[i], err = w.delta(ctx, next, i, elementSize(m), spool, most)
			if err == nil && !own {
				name(&m.Shards[i], stored.Shards[i].FullHash, next.Size())
			}
			return err
		})
	}
	if err == nil && most.taken.Load() > whole.Load()/2 { // too large to be worth the chain that every reader must follow
		err = errNoDelta
	}
	if err != nil {
		if ctx.Err() != nil {
			return spool, nil, context.Cause(ctx)
		}
		level := slog.LevelWarn
		if errors.Is(err, errNoDelta) {
			level = slog.LevelDebug
		}
		w.run.log.Log(ctx, level, "a version is published whole", "version", m.Version, "err", err)
		return spool, nil, nil
	}
	return spool, &stored, nil
}

// delta makes shard i into a delta against that of the held version, in a file. Both are read once and hashed meanwhile.
func (w *Weights) delta(ctx context.Context, next Blob, i, width int, spool *spooled, most *room) (s schemas.Shard, err error) {
	base, err := w.base(i)
	if err != nil {
		return s, fmt.Errorf("read shard %d of version %d again: %w", i, w.held.Version, err)
	}
	defer func() { _ = base.Close() }() // read only
	if base.Size() != next.Size() {
		return s, fmt.Errorf("%w: shard %d has %d bytes and had %d", delta.ErrSize, i, next.Size(), base.Size())
	}
	f, err := os.Create(spool.path(i))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	was, is, to := sha256.New(), sha256.New(), newInFile(f)
	err = delta.Write(most.bound(to), io.TeeReader(all(ctx, base), was), io.TeeReader(all(ctx, next), is), next.Size(), width)
	if err != nil {
		return s, err
	}
	if !w.own && sum(was) != w.held.Shards[i].FullHash {
		return s, fmt.Errorf("shard %d of version %d has changed since it was published", i, w.held.Version)
	}
	size, err := f.Seek(0, io.SeekCurrent)
	return schemas.Shard{Hash: to.sum(), Size: size, Encoding: schemas.EncodingDelta, FullHash: sum(is)}, err
}

// elementSize is the size of the numbers in a version's shards; an adapter's are float32.
func elementSize(m *schemas.Manifest) int {
	if m.DType == "bfloat16" && m.Adapter == nil {
		return 2
	}
	return 4
}

// room counts what several writers write, and ends them where it is more than a bound; 0 is none.
type room struct {
	most  int64
	taken atomic.Int64
}

func newRoom(most int64) *room { return &room{most: most} }

// bound is a writer that counts.
func (r *room) bound(w io.Writer) io.Writer { return &bounded{r, w} }

type bounded struct {
	room *room
	w    io.Writer
}

func (b *bounded) Write(p []byte) (int, error) {
	if all := b.room.taken.Add(int64(len(p))); b.room.most > 0 && all > b.room.most {
		return 0, errNoDelta
	}
	return b.w.Write(p)
}

// spooled is a folder of deltas that are not stored yet; nil is none.
type spooled struct{ dir string }

func (w *Weights) newSpool() (*spooled, error) {
	in := w.spool
	if in == "" {
		in = w.config.Dir
	}
	dir, err := os.MkdirTemp(in, tmpPrefix+"deltas-*")
	if err != nil {
		return nil, err
	}
	return &spooled{dir}, nil
}

func (s *spooled) path(i int) string { return filepath.Join(s.dir, strconv.Itoa(i)) }

func (s *spooled) open(i int) (Blob, error) { return OpenBlob(s.path(i)) }

func (s *spooled) remove() {
	if s != nil {
		_ = os.RemoveAll(s.dir) // what a failure leaves is swept
	}
}

// hold makes a version the base of the next delta.
func (w *Weights) hold(m *schemas.Manifest, whole ShardSource, own bool, length int) {
	w.held, w.base, w.own, w.length = m, whole, own, length
}
