package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/delta"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// Folder brings the weights of policy versions into folders, as files. It is safe for concurrent use, a single version at a time.
type Folder struct {
	run   seam.Run
	store shardStore

	mu sync.Mutex
	// seen has the stamp of each file that was verified, by path.
	seen sync.Map
}

// Files brings the whole shards of a version into a folder that nobody else writes to, as files named by their hashes, and
// returns their paths in the order of m.AllShards(). A few shards are read side by side, each in pieces, so that some megabytes of
// them are in memory. A file that is there already, as after a cut or from the version before, is verified and not read again; a
// delta is put on its base's file, or the chain is read from its whole base. When all are there, everything else in the folder is
// removed. Files fails with [streams.ErrNoShard] or [streams.ErrNoWeights] if the version, or a base of it, is no longer kept, and with
// [streams.ErrCorruptShard]; the shards that it has finished stay, and the next call finds them.
//
// Invariant: every file was verified against the manifest.
func (d *Folder) Files(ctx context.Context, m *schemas.Manifest, dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths, err := d.bringVersion(ctx, m, dir)
	if err != nil {
		return nil, fmt.Errorf("load version %d: %w", m.Version, err)
	}
	return paths, nil
}

func (d *Folder) bringVersion(ctx context.Context, m *schemas.Manifest, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	links := []*schemas.Manifest{m}
	if m.Base != schemas.NoBase {
		history, err := d.run.Manifests(ctx)
		if err != nil {
			return nil, err
		}
		links = basesOf(m, history)
	}
	paths := make([]string, len(m.AllShards()))
	err := eachShard(ctx, len(paths), func(i int) (err error) {
		if i < len(m.Shards) {
			paths[i], err = d.bringShard(ctx, links, i, folderShards{dir})
		} else {
			paths[i], err = d.bringFrozen(ctx, m.Adapter.Frozen[i-len(m.Shards)], folderShards{dir})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return paths, d.keepOnly(dir, paths)
}

// basesOf is m and its bases, newest first, as far down as history has them.
func basesOf(m *schemas.Manifest, history []*schemas.Manifest) []*schemas.Manifest {
	links := []*schemas.Manifest{m}
	for m.Base != schemas.NoBase {
		i := slices.IndexFunc(history, func(h *schemas.Manifest) bool { return h.Version == m.Base })
		if i < 0 || len(history[i].Shards) != len(m.Shards) {
			return links
		}
		m = history[i]
		links = append(links, m)
	}
	return links
}

// bringShard brings shard i of the first of links into a folder: from the newest of links of which the shard is there, or is whole.
func (d *Folder) bringShard(ctx context.Context, links []*schemas.Manifest, i int, in folderShards) (string, error) {
	var have string
	first := -1
	for at, link := range links {
		s := link.Shards[i]
		path, err := in.shardPath(s.FullHash)
		if err != nil {
			return "", err
		}
		there, err := d.holdsFile(ctx, path, s.FullHash)
		if err != nil {
			return "", err
		}
		if there {
			have, first = path, at
			break
		}
		if s.Encoding != schemas.EncodingDelta {
			if have, err = d.bringWhole(ctx, s, in); err != nil {
				return "", err
			}
			first = at
			break
		}
	}
	if first < 0 {
		last := links[len(links)-1]
		return "", fmt.Errorf("version %d stands on version %d: %w", last.Version, last.Base, streams.ErrNoWeights)
	}
	for at := first - 1; at >= 0; at-- {
		s := links[at].Shards[i]
		next, err := d.fillFile(ctx, s, s.FullHash, in, func(ctx context.Context, s schemas.Shard, to *os.File) (string, error) {
			return d.applyStored(ctx, s, have, in, to)
		})
		if err != nil {
			return "", fmt.Errorf("version %d: %w", links[at].Version, err)
		}
		have = next
	}
	return have, nil
}

// bringFrozen brings a whole shard into a folder, unless it is there.
func (d *Folder) bringFrozen(ctx context.Context, s schemas.Shard, in folderShards) (string, error) {
	path, err := in.shardPath(s.FullHash)
	if err != nil {
		return "", err
	}
	there, err := d.holdsFile(ctx, path, s.FullHash)
	if err != nil || there {
		return path, err
	}
	return d.bringWhole(ctx, s, in)
}

// stamp distinguishes a file that was written to since from a file that was not.
type stamp struct {
	size    int64
	changed time.Time
}

func stampOf(info fs.FileInfo) stamp { return stamp{info.Size(), info.ModTime()} }

// holdsFile reports whether a file has the bytes of its hash; a file with other bytes is removed. A file is hashed once, unless it
// has changed.
func (d *Folder) holdsFile(ctx context.Context, path, hash string) (bool, error) {
	blob, err := OpenBlob(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = blob.Close() }() // read only
	info, err := blob.(*file).Stat()
	if err != nil {
		return false, err
	}
	if now, ok := d.seen.Load(path); ok && now == stampOf(info) {
		return true, nil
	}
	found, err := hashOf(ctx, blob)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	if found != hash {
		d.run.Log().Warn("a file of weights has changed and is read again", "file", path, "hash", found)
		return false, os.Remove(path)
	}
	d.seen.Store(path, stampOf(info))
	return true, nil
}

// fillFile makes the file of a hash by a function that fills a new file and returns the hash of the bytes that it wrote.
func (d *Folder) fillFile(ctx context.Context, s schemas.Shard, hash string, in folderShards,
	fill func(ctx context.Context, s schemas.Shard, to *os.File) (string, error),
) (_ string, err error) {
	path, err := in.shardPath(hash)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(in.dir, tmpPrefix+"*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // what is left is removed with the next version
		}
	}()
	found, err := fill(ctx, s, f)
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", err
	}
	if err := verifyHash(hash, found); err != nil {
		return "", err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	d.seen.Store(path, stampOf(info))
	return path, nil
}

// bringWhole makes the file of a whole shard: a link where it lies in a folder on the same disk, else a copy.
func (d *Folder) bringWhole(ctx context.Context, s schemas.Shard, in folderShards) (string, error) {
	from, ok := d.store.(folderShards)
	if !ok {
		return d.fillFile(ctx, s, s.FullHash, in, d.fetchShard)
	}
	stored, err := from.shardPath(s.Hash)
	if err != nil {
		return "", err
	}
	path, err := in.shardPath(s.FullHash)
	if err != nil {
		return "", err
	}
	if os.Link(stored, path) != nil {
		return d.fillFile(ctx, s, s.FullHash, in, d.fetchShard)
	}
	there, err := d.holdsFile(ctx, path, s.FullHash)
	if err == nil && !there {
		err = fmt.Errorf("%w: %s: its bytes have another hash", streams.ErrCorruptShard, stored)
	}
	return path, err
}

// fetchShard reads a stored shard into a file.
func (d *Folder) fetchShard(ctx context.Context, s schemas.Shard, f *os.File) (string, error) {
	to := newInFile(f)
	if err := d.store.readShard(ctx, s, to); err != nil {
		return "", err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return "", err
	}
	return s.Hash, verifyShard(s, size, to.contentHash())
}

// applyStored applies a stored delta to the file of a base and writes the result.
func (d *Folder) applyStored(ctx context.Context, s schemas.Shard, base string, in folderShards, f *os.File) (_ string, err error) {
	packed, err := os.CreateTemp(in.dir, tmpPrefix+"*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, packed.Close(), os.Remove(packed.Name())) }()
	if _, err := d.fetchShard(ctx, s, packed); err != nil {
		return "", err
	}
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	before, err := OpenBlob(base)
	if err != nil {
		return "", err
	}
	defer func() { _ = before.Close() }() // read only
	to := newInFile(f)
	if err := delta.Apply(to, readerOf(ctx, before), before.Size(), packed); err != nil {
		if errors.Is(err, delta.ErrCorrupt) {
			err = fmt.Errorf("%w: %s: %w", streams.ErrCorruptShard, s.Hash, err)
		}
		return "", err
	}
	return to.contentHash(), nil
}

// keepOnly removes everything in a folder but the files of a version.
func (d *Folder) keepOnly(dir string, paths []string) error {
	keep := map[string]bool{}
	for _, path := range paths {
		keep[filepath.Base(path)] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			path := filepath.Join(dir, e.Name())
			d.seen.Delete(path)
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}
