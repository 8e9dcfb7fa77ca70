package weights

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// folderShards keeps shards as files named by their hash, in a folder that every reader of the run shares.
type folderShards struct{ dir string }

// tmpPrefix begins the names of files that are being written.
const tmpPrefix = "tmp-"

// shardPath is the file of a shard. It refuses a name that is no hash: names come from a manifest, and must not lead out of the folder.
func (f folderShards) shardPath(hash string) (string, error) {
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("%w: %.80q is no hash", streams.ErrCorruptShard, hash)
	}
	return filepath.Join(f.dir, hash), nil
}

// putShard links the blob where it is a file on the same disk, else it copies it; either way it hashes the file that then lies in the
// folder.
func (f folderShards) putShard(ctx context.Context, hash string, blob Blob) (_ string, err error) {
	if hash != "" {
		path, err := f.shardPath(hash)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(path); err == nil && info.Size() == blob.Size() {
			return hash, nil
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("put shard in %s: %w", f.dir, err)
		}
	}()
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return "", err
	}
	tmp, found, err := f.bringBlob(ctx, blob)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	if hash == "" {
		hash = found
	}
	if err := verifyHash(hash, found); err != nil {
		return "", err
	}
	path, err := f.shardPath(hash)
	if err != nil {
		return "", err
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", err
	}
	_ = os.Remove(tmp) // renaming a link to its own file leaves both names
	return hash, syncFolder(f.dir)
}

// bringBlob makes a file of the folder that holds a blob's bytes and is synced, and hashes them.
func (f folderShards) bringBlob(ctx context.Context, blob Blob) (tmp, hash string, err error) {
	if from, ok := blob.(*file); ok {
		tmp = filepath.Join(f.dir, tmpPrefix+rand.Text())
		if os.Link(from.Name(), tmp) == nil {
			hash, err = hashLinked(ctx, tmp, blob.Size())
			if err != nil {
				_ = os.Remove(tmp)
			}
			return tmp, hash, err
		}
	}
	out, err := os.CreateTemp(f.dir, tmpPrefix+"*")
	if err != nil {
		return "", "", err
	}
	to := newInFile(out)
	_, err = copyPieces(to, readerOf(ctx, blob))
	err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close())
	if err != nil {
		_ = os.Remove(out.Name())
	}
	return out.Name(), to.contentHash(), err
}

// hashLinked syncs a file, makes it readable for all, and hashes it. The name may stand for another file than the blob's, where
// that was replaced: the file that lies in the folder counts.
func hashLinked(ctx context.Context, path string, size int64) (hash string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() != size {
		return "", fmt.Errorf("%w: %d bytes, and %d before: it was changed while it was published", streams.ErrCorruptShard, info.Size(), size)
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return "", err
	}
	return hashOf(ctx, &file{f, info.Size()})
}

// syncFolder makes a rename in dir durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openShard is a stored shard of the size in the manifest.
func (f folderShards) openShard(shard schemas.Shard) (Blob, error) {
	path, err := f.shardPath(shard.Hash)
	if err != nil {
		return nil, err
	}
	blob, err := OpenBlob(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; weights.dir must be as it was where the version was published, \"\" for the broker",
			streams.ErrNoShard, path)
	}
	if err != nil {
		return nil, fmt.Errorf("get shard: %w", err)
	}
	if blob.Size() != shard.Size {
		return nil, errors.Join(fmt.Errorf("%w: %s: %d bytes, the manifest says %d",
			streams.ErrCorruptShard, path, blob.Size(), shard.Size), blob.Close())
	}
	return blob, nil
}

func (f folderShards) readShard(ctx context.Context, shard schemas.Shard, to sink) error {
	blob, err := f.openShard(shard)
	if err != nil {
		return err
	}
	defer func() { _ = blob.Close() }() // read only
	if err := to.restartShard(); err != nil {
		return err
	}
	if _, err := copyPieces(to, readerOf(ctx, blob)); err != nil {
		return fmt.Errorf("get shard %s: %w", shard.Hash, err)
	}
	return nil
}

func (f folderShards) listShards(context.Context) (map[string]time.Duration, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	hashes := make(map[string]time.Duration, len(entries))
	for _, e := range entries {
		if _, err := f.shardPath(e.Name()); err != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list shards: %w", err)
		}
		hashes[e.Name()] = time.Since(info.ModTime())
	}
	return hashes, nil
}

func (f folderShards) removeShard(_ context.Context, hash string) error {
	path, err := f.shardPath(hash)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove shard: %w", err)
	}
	return nil
}

func (f folderShards) sweepUnfinished(_ context.Context, age time.Duration) error {
	tmps, err := filepath.Glob(filepath.Join(f.dir, tmpPrefix+"*"))
	if err != nil {
		return fmt.Errorf("sweep shards: %w", err)
	}
	for _, tmp := range tmps {
		info, err := os.Stat(tmp)
		if err == nil && time.Since(info.ModTime()) >= age {
			err = os.RemoveAll(tmp) // deltas that were being made are a folder
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep shards: %w", err)
		}
	}
	return nil
}
