package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/internal/filelock"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Folder keeps the newest policy versions on disk, each as a Hugging Face folder DIR/vN, for a [Sampler] that reads weights from there. A
// version is written to DIR/vN.tmp, checked, and renamed: a folder without .tmp is whole. Files that are the same as the version's before
// are hard links of that version's. The newest version and the version before it are kept, and every version that is held ([Snapshot.Hold])
// for as long. Make it with OpenFolder; a single goroutine calls Land.
type Folder struct {
	dir    string
	beside func(dir string, c gpu.Config, dtype gpu.DType) error
	unlock func() error
	// memory is where versions land first; nil where they land in dir alone.
	memory *memoryPlace

	mu     sync.Mutex
	landed []*landed // oldest first
	used   *landed   // the newest that came into use; nil before the first
	// times is how often each version has landed.
	times map[int64]int
}

// landed is a version's folder that is whole.
type landed struct {
	manifest *schemas.Manifest
	snapshot Snapshot
	// files describe each written shard, so that a file which somebody changed is not linked.
	files []os.FileInfo
	// copied is the folder on disk of a version in memory.
	copied diskCopy

	// Under Folder.mu.
	holds   int
	dropped bool // it goes when nobody holds it
	gone    bool
}

// keptVersions is how many folders stay: a server that fails to load the newest goes back to the version before.
const keptVersions = 2

// OpenFolder takes a folder for this process, makes it if need be, and removes the versions that an earlier process left. beside
// writes config.json and the tokenizer's files into each version's folder.
func OpenFolder(dir string, beside func(dir string, c gpu.Config, dtype gpu.DType) error) (*Folder, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of weights %s: %w", dir, err)
	}
	f := &Folder{dir: absolute, beside: beside, times: map[int64]int{}}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of weights: %w", err)
	}
	if f.unlock, err = filelock.Hold(filepath.Join(f.dir, ".lock"), ErrTaken); err != nil {
		return nil, fmt.Errorf("folder of weights %s: %w; name another by inference.server.dir", f.dir, err)
	}
	if err := sweepFolder(f.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("sweep the folder of weights: %w", err), f.unlock())
	}
	return f, nil
}

// Close gives the folder to the next process. Its versions stay, but for those in memory.
func (f *Folder) Close() error { return errors.Join(f.memory.leave(), f.unlock()) }

// Dir is the folder's whole path.
func (f *Folder) Dir() string { return f.dir }

// ours are the names of folders that Land makes. Nothing else is removed.
var ours = regexp.MustCompile(`^v[0-9]+(-[0-9]+)?(\.tmp)?$`)

// sweepFolder removes the versions that an earlier process left: nobody knows whether they have reached the disk.
func sweepFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && ours.MatchString(e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Land fetches and verifies a published version and gives its folder. The tokenizer is as for Fetch. A version that has landed
// is not fetched again. An error wraps ErrBadWeights when the manifest or a shard is at fault; it leaves nothing behind.
func (f *Folder) Land(ctx context.Context, from WeightLoader, m *schemas.Manifest, tokenizerHash string) (Snapshot, error) {
	config, err := describeManifest(m, tokenizerHash)
	if err != nil {
		return Snapshot{}, err
	}
	if at := f.findLanded(m); at != nil {
		return at.snapshot, nil
	}
	at := &landed{manifest: m, snapshot: Snapshot{Version: m.Version, Config: config}}
	at.snapshot.lease = &lease{f, at}
	if err := f.dropStale(); err != nil {
		return Snapshot{}, fmt.Errorf("land version %d: %w", m.Version, err)
	}
	if f.memory != nil {
		err := f.landIn(ctx, f.memory.dir, at, from)
		if !isLostPlace(err) {
			return at.snapshot, err
		}
		f.memory.tell(m.Version, err)
	}
	return at.snapshot, f.landIn(ctx, f.dir, at, from)
}

// landIn writes a version's folder in dir and takes it in.
func (f *Folder) landIn(ctx context.Context, dir string, at *landed, from WeightLoader) error {
	at.files = nil
	tmp := filepath.Join(dir, fmt.Sprintf("v%d.tmp", at.manifest.Version))
	if err := f.writeVersion(ctx, tmp, at, from); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := f.addLanded(tmp, at); err != nil {
		return errors.Join(fmt.Errorf("land version %d: %w", at.manifest.Version, err), os.RemoveAll(tmp))
	}
	return nil
}

// findLanded is the folder of a manifest that has landed and is still whole; nil if there is none.
func (f *Folder) findLanded(m *schemas.Manifest) *landed {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, l := range f.landed {
		had, have := l.manifest.AllShards(), m.AllShards()
		if l.gone || l.manifest.Version != m.Version || (l.manifest.Adapter == nil) != (m.Adapter == nil) || len(had) != len(have) {
			continue
		}
		same := true
		for i, s := range have {
			same = same && s.FullHash == had[i].FullHash
		}
		for i, then := range l.files {
			same = same && isUnchanged(filepath.Join(l.snapshot.Dir, shardName(i, len(l.files))), then)
		}
		if same { // it is the newest again, also where somebody held it that was dropped, or a trainer went back to it
			l.dropped = false
			f.landed = append(slices.Delete(f.landed, n, n+1), l)
			return l
		}
	}
	return nil
}

// writeVersion fills a version's temporary folder and checks it as a whole.
func (f *Folder) writeVersion(ctx context.Context, tmp string, at *landed, from WeightLoader) error {
	m := at.manifest
	fail := func(err error) error { return fmt.Errorf("land version %d: %w", m.Version, err) }
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return fail(err)
	}
	if err := f.fetchShards(ctx, tmp, m, from); err != nil {
		return err
	}
	if err := writeIndex(tmp, countModelFiles(m)); err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	if err := f.beside(tmp, at.snapshot.Config, gpu.DType(m.DType)); err != nil {
		return fail(err)
	}
	if err := checkFolder(tmp, at.snapshot.Config); err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	for i := range countModelFiles(m) {
		info, err := os.Stat(filepath.Join(tmp, shardName(i, countModelFiles(m))))
		if err != nil {
			return fail(err)
		}
		at.files = append(at.files, info)
	}
	return nil
}

// FileLoader is a WeightLoader that brings a version's shards as verified files of a folder, whose names and contents stay
// while a later version has them too. A *weights.Loader is a FileLoader.
type FileLoader interface {
	Files(ctx context.Context, m *schemas.Manifest, dir string) ([]string, error)
}

// fetchShards puts the shards of a version into its temporary folder: as hard links of files that are there, or written.
func (f *Folder) fetchShards(ctx context.Context, tmp string, m *schemas.Manifest, from WeightLoader) error {
	var paths []string
	var data [][]byte
	var err error
	files, inFiles := from.(FileLoader)
	if inFiles {
		paths, err = files.Files(ctx, m, filepath.Join(filepath.Dir(tmp), filesName))
	} else {
		data, err = from.Load(ctx, m)
	}
	switch {
	case errors.Is(err, streams.ErrCorruptShard):
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	case err != nil:
		return err
	case len(data)+len(paths) != len(m.AllShards()):
		return fmt.Errorf("%w: %d shards were read, the manifest has %d", ErrBadWeights, len(data)+len(paths), len(m.AllShards()))
	}
	if m.Adapter != nil {
		return f.mergeAdapter(ctx, tmp, m, data, paths)
	}
	for i, s := range m.Shards {
		to := filepath.Join(tmp, shardName(i, len(m.Shards)))
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("land version %d: %w", m.Version, context.Cause(ctx))
		case inFiles:
			err = linkOrCopy(paths[i], to)
		case !f.linkShard(s.FullHash, to):
			err = os.WriteFile(to, data[i], 0o644)
		}
		if err != nil {
			return fmt.Errorf("land version %d: %w", m.Version, err)
		}
	}
	return nil
}

// mergeAdapter writes the merged weights of a version that is an adapter into its temporary folder.
func (f *Folder) mergeAdapter(ctx context.Context, tmp string, m *schemas.Manifest, data [][]byte, paths []string) error {
	if paths == nil { // a source that has them in memory alone
		parts := filepath.Join(tmp, "parts")
		if err := os.Mkdir(parts, 0o755); err != nil {
			return fmt.Errorf("land version %d: %w", m.Version, err)
		}
		defer func() { _ = os.RemoveAll(parts) }() // else the check of the whole folder finds it
		for i := range data {
			paths = append(paths, filepath.Join(parts, fmt.Sprintf("%d.safetensors", i)))
			if err := os.WriteFile(paths[i], data[i], 0o644); err != nil {
				return fmt.Errorf("land version %d: %w", m.Version, err)
			}
		}
	}
	if err := writeMerged(ctx, m, paths, tmp); err != nil {
		return fmt.Errorf("land version %d: merge its adapter: %w", m.Version, err)
	}
	return nil
}

// filesName is the folder with the newest version's files, named by their hashes.
const filesName = "files"

// linkOrCopy makes a hard link, or a copy where the disk has no links.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// checkFolder refuses a folder whose files are not whole, or are of another model.
func checkFolder(dir string, c gpu.Config) error {
	model, err := hf.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(model.Fits(c), model.Close())
}

// linkShard makes path a hard link of a file with a hash that landed before; false where there is none, or the disk has no links.
func (f *Folder) linkShard(hash, path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.landed {
		if l.manifest.Adapter != nil {
			continue // its files are no shards
		}
		for i, s := range l.manifest.Shards {
			from := filepath.Join(l.snapshot.Dir, shardName(i, len(l.manifest.Shards)))
			if s.FullHash == hash && isUnchanged(from, l.files[i]) {
				return os.Link(from, path) == nil
			}
		}
	}
	return false
}

// isUnchanged reports whether a file is still the written file, by its identity, size and time.
func isUnchanged(path string, then os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, then) && now.Size() == then.Size() && now.ModTime().Equal(then.ModTime())
}

// shardName is the file of the i-th of n shards, in Transformers' form.
func shardName(i, n int) string {
	if n == 1 {
		return gpu.WeightsFile
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

// writeIndex writes which of several files has which tensor.
func writeIndex(dir string, files int) error {
	if files == 1 {
		return nil
	}
	where, total := map[string]string{}, int64(0)
	for i := range files {
		name := shardName(i, files)
		open, err := safetensors.OpenFolder(dir, name)
		if err != nil {
			return err
		}
		for _, t := range open.Tensors() {
			where[t.Name] = name
		}
		if err := open.Close(); err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		total += info.Size()
	}
	data, err := json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": where}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, safetensors.IndexName(gpu.WeightsFile)), append(data, '\n'), 0o644)
}
