package weights

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

// deltas are a version's shards as deltas, in files.
type deltas struct {
	spool *spool
	// shards are the deltas as a manifest names them, sizes the bytes of the whole shards.
	shards []schemas.Shard
	sizes  []int64
}

// makeDeltas makes the shards of a version into deltas against the plan's base. It returns nil, nil where there is no base, where the
// whole shards are not twice as large as the deltas, or where a shard or its base could not be read. It fails only where ctx ends.
// The caller removes the spool of the deltas.
func (p *Publisher) makeDeltas(ctx context.Context, plan versionPlan, whole wholeShards) (*deltas, error) {
	if plan.base == nil {
		return nil, nil
	}
	d, err := p.spoolDeltas(ctx, plan, whole)
	switch {
	case err == nil:
		return d, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	level := slog.LevelWarn
	if errors.Is(err, errNoDelta) {
		level = slog.LevelDebug
	}
	p.run.Log().Log(ctx, level, "a version is published whole", "version", plan.manifest.Version, "err", err)
	return nil, nil
}

// spoolDeltas writes the deltas into a spool, and removes the spool where it fails.
func (p *Publisher) spoolDeltas(ctx context.Context, plan versionPlan, whole wholeShards) (_ *deltas, err error) {
	m := plan.manifest
	known := int64(0)
	for _, s := range m.Shards {
		known += s.Size
	}
	most := newDeltaRoom(known / 2)
	d := &deltas{shards: make([]schemas.Shard, len(m.Shards)), sizes: make([]int64, len(m.Shards))}
	if d.spool, err = p.newSpool(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.spool.removeSpool()
		}
	}()
	err = eachShard(ctx, len(m.Shards), func(i int) error {
		next, err := whole.open(i)
		if err != nil {
			return err
		}
		defer func() { _ = next.Close() }() // read only
		d.sizes[i] = next.Size()
		d.shards[i], err = writeDelta(ctx, plan.base, next, i, elementSize(m), d.spool.deltaPath(i), most)
		return err
	})
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, size := range d.sizes {
		total += size
	}
	if most.taken.Load() > total/2 { // too large to be worth the chain that every reader must follow
		return nil, errNoDelta
	}
	return d, nil
}

// writeDelta makes a shard into a delta against shard i of a version, in a file. Both are read once and hashed meanwhile.
func writeDelta(ctx context.Context, held *heldVersion, next Blob, i, width int, path string, most *room) (s schemas.Shard, err error) {
	base, err := held.whole.open(i)
	if err != nil {
		return s, fmt.Errorf("read shard %d of version %d again: %w", i, held.manifest.Version, err)
	}
	defer func() { _ = base.Close() }() // read only
	if base.Size() != next.Size() {
		return s, fmt.Errorf("%w: shard %d has %d bytes and had %d", delta.ErrSize, i, next.Size(), base.Size())
	}
	f, err := os.Create(path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	was, is, to := sha256.New(), sha256.New(), newInFile(f)
	err = delta.Write(most.boundWriter(to), io.TeeReader(readerOf(ctx, base), was), io.TeeReader(readerOf(ctx, next), is), next.Size(), width)
	if err != nil {
		return s, err
	}
	if !held.whole.stable && hexSum(was) != held.manifest.Shards[i].FullHash {
		return s, fmt.Errorf("shard %d of version %d has changed since it was published", i, held.manifest.Version)
	}
	size, err := f.Seek(0, io.SeekCurrent)
	return schemas.Shard{Hash: to.contentHash(), Size: size, Encoding: schemas.EncodingDelta, FullHash: hexSum(is)}, err
}

// elementSize is the size of the numbers in a version's shards; an adapter's are float32.
func elementSize(m *schemas.Manifest) int {
	if m.DType == "bfloat16" && m.Adapter == nil {
		return 2
	}
	return 4
}

// room counts the bytes of several writers, and ends them where they are more than a bound; 0 is none.
type room struct {
	most  int64
	taken atomic.Int64
}

func newDeltaRoom(most int64) *room { return &room{most: most} }

// boundWriter is a writer that counts.
func (r *room) boundWriter(w io.Writer) io.Writer { return &bounded{r, w} }

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

// spool is a folder of deltas that are not stored yet; nil is none.
type spool struct{ dir string }

func (p *Publisher) newSpool() (*spool, error) {
	in := p.spoolDir
	if in == "" {
		in = p.config.Dir
	}
	dir, err := os.MkdirTemp(in, tmpPrefix+"deltas-*")
	if err != nil {
		return nil, err
	}
	return &spool{dir}, nil
}

func (s *spool) deltaPath(i int) string { return filepath.Join(s.dir, strconv.Itoa(i)) }

func (s *spool) openDelta(i int) (Blob, error) { return OpenBlob(s.deltaPath(i)) }

func (s *spool) removeSpool() {
	if s != nil {
		_ = os.RemoveAll(s.dir) // what a failure leaves is swept
	}
}
