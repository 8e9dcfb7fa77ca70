package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// folderShards keeps shards as files named by their hash, in a folder that every reader of the run shares.
type folderShards struct{ dir string }

// tmpPrefix begins the names of files that are being written.
const tmpPrefix = "tmp-"

// path is the file of a shard. It refuses a name that is no hash: names come from a manifest, and must not lead out of the folder.
func (f folderShards) path(hash string) (string, error) {
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("%w: %.80q is no hash", ErrCorruptShard, hash)
	}
	return filepath.Join(f.dir, hash), nil
}

func (f folderShards) put(_ context.Context, hash string, data []byte) (err error) {
	path, err := f.path(hash)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(data)) {
		return nil
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("put shard: %w", err)
	}
	tmp, err := os.CreateTemp(f.dir, tmpPrefix+"*")
	if err != nil {
		return fmt.Errorf("put shard: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
			err = fmt.Errorf("put shard %s: %w", hash, err)
		}
	}()
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncFolder(f.dir)
}

// syncFolder makes a rename in dir durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f folderShards) get(_ context.Context, shard schemas.Shard) ([]byte, error) {
	path, err := f.path(shard.Hash)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; weights.dir must be as it was where the version was published, \"\" for the broker", ErrNoShard, path)
	}
	if err != nil {
		return nil, fmt.Errorf("get shard: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("get shard: %w", err)
	}
	if info.Size() != shard.Size {
		return nil, fmt.Errorf("%w: %s: %d bytes, the manifest says %d", ErrCorruptShard, path, info.Size(), shard.Size)
	}
	data := make([]byte, shard.Size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, fmt.Errorf("get shard: %w", err)
	}
	return data, nil
}

func (f folderShards) list(context.Context) (map[string]time.Time, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	hashes := make(map[string]time.Time, len(entries))
	for _, e := range entries {
		if _, err := f.path(e.Name()); err != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list shards: %w", err)
		}
		hashes[e.Name()] = info.ModTime()
	}
	return hashes, nil
}

func (f folderShards) remove(_ context.Context, hash string) error {
	path, err := f.path(hash)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove shard: %w", err)
	}
	return nil
}

func (f folderShards) sweep(_ context.Context, age time.Duration) error {
	tmps, err := filepath.Glob(filepath.Join(f.dir, tmpPrefix+"*"))
	if err != nil {
		return fmt.Errorf("sweep shards: %w", err)
	}
	for _, tmp := range tmps {
		info, err := os.Stat(tmp)
		if err == nil && time.Since(info.ModTime()) >= age {
			err = os.Remove(tmp)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep shards: %w", err)
		}
	}
	return nil
}
