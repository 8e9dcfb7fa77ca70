package checkpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

const (
	manifestFile = "MANIFEST.json"
	stateFile    = "state.json"
	recordFile   = "record.json"
	pendingFile  = "pending.bin"
	criticDir    = "critic"
	purgedFile   = "purged.json"
	lockFile     = "LOCK"
	// passedFile marks a light checkpoint that a start has passed over. It is not in the manifest.
	passedFile = "PASSED_OVER"

	// A folder that is being written, and a folder whose replacement is being put into place.
	tmpPrefix = ".tmp-"
	oldPrefix = ".old-"
	// A file that is being written.
	tmpSuffix = ".tmp"
)

// manifest lists the files of a checkpoint.
type manifest struct {
	Format int         `json:"format"`
	Step   int64       `json:"step"`
	Files  []fileEntry `json:"files"`
}

type fileEntry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Damage is a checkpoint that cannot be used.
type Damage struct { //nolint:errname // it is a finding first: a list of them is part of a successful load
	// Dir is the checkpoint's folder, File the file within it.
	Dir, File string
	// Want is the expected value and Have the value found.
	Want, Have string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("checkpoint %s: %s: want %s, have %s", d.Dir, d.File, d.Want, d.Have)
}

// sealFolder syncs every file of a folder, and of its subfolders, and writes the manifest last. The files of done are hashed and synced
// already.
func sealFolder(dir string, step int64, done ...fileEntry) error {
	m := manifest{Format: Format, Step: step}
	isDone := map[string]bool{}
	for _, f := range done {
		isDone[f.Name] = true
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir:
			return nil
		case e.IsDir():
			return SyncDir(path)
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a plain file", path)
		}
		name, err := filepath.Rel(dir, path)
		if name = filepath.ToSlash(name); !isDone[name] && name != manifestFile+tmpSuffix { // of a seal that was cut off
			m.Files = append(m.Files, fileEntry{Name: name})
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := describeFiles(dir, m.Files); err != nil {
		return err
	}
	m.Files = append(m.Files, done...)
	slices.SortFunc(m.Files, func(a, b fileEntry) int { return cmp.Compare(a.Name, b.Name) })
	return replaceFile(filepath.Join(dir, manifestFile), m)
}

// describeFiles syncs the named files of a folder, and fills in their sizes and hashes.
func describeFiles(dir string, files []fileEntry) error {
	return runParallel(len(files), func(i int) error {
		entry, err := describeFile(filepath.Join(dir, files[i].Name), true)
		entry.Name = files[i].Name
		files[i] = entry
		return err
	})
}

// runParallel calls do for 0 to n-1, as many at a time as there are processors, at most four: the disk is shared. It returns the error of
// the lowest index that failed.
func runParallel(n int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4))
	errs := make([]error, n)
	for i := range n {
		group.Go(func() error {
			errs[i] = do(i)
			return nil
		})
	}
	return cmp.Or(group.Wait(), cmp.Or(errs...))
}

func describeFile(path string, sync bool) (fileEntry, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileEntry{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return fileEntry{}, err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return fileEntry{}, err
		}
	}
	return fileEntry{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// verifyFolder compares a folder with its manifest, which must list the required files and every file that a reader could take for part of
// a model. The error is a *Damage when the folder is at fault.
func verifyFolder(dir string, step int64, required ...string) error {
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &Damage{Dir: dir, File: manifestFile, Want: "a manifest", Have: "no such file"}
	}
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return &Damage{Dir: dir, File: manifestFile, Want: "JSON", Have: err.Error()}
	}
	if m.Format != Format || m.Step != step {
		return &Damage{
			Dir: dir, File: manifestFile,
			Want: fmt.Sprintf("format %d, step %d", Format, step), Have: fmt.Sprintf("format %d, step %d", m.Format, m.Step),
		}
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Name) {
			return &Damage{Dir: dir, File: manifestFile, Want: "files within the folder", Have: f.Name}
		}
	}
	if err := m.checkComplete(dir, required); err != nil {
		return err
	}
	return runParallel(len(m.Files), func(i int) error { return m.Files[i].verifyFile(dir) })
}

// verifyFile compares a file of a folder with its entry.
func (f fileEntry) verifyFile(dir string) error {
	damage := func(want, have string) error { return &Damage{Dir: dir, File: f.Name, Want: want, Have: have} }
	path := filepath.Join(dir, f.Name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return damage(fmt.Sprintf("%d bytes", f.Size), "no such file")
	}
	if err != nil {
		return err
	}
	if info.Size() != f.Size {
		return damage(fmt.Sprintf("%d bytes", f.Size), fmt.Sprintf("%d bytes", info.Size()))
	}
	have, err := describeFile(path, false)
	if err != nil {
		return err
	}
	if have.SHA256 != f.SHA256 {
		return damage("SHA-256 "+f.SHA256, "SHA-256 "+have.SHA256)
	}
	return nil
}

// checkComplete returns a *Damage unless the manifest lists the required files and every file of a model in the folder.
func (m *manifest) checkComplete(dir string, required []string) error {
	listed := map[string]bool{manifestFile: true}
	for _, f := range m.Files {
		listed[f.Name] = true
	}
	for _, name := range required {
		if !listed[name] {
			return &Damage{Dir: dir, File: manifestFile, Want: "an entry for " + name, Have: "none"}
		}
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".json", ".safetensors", ".bin":
			if name = filepath.ToSlash(name); !e.IsDir() && !listed[name] {
				return &Damage{Dir: dir, File: name, Want: "an entry in " + manifestFile, Have: "none"}
			}
		}
		return nil
	})
}

// writeJSON writes and syncs a file.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'))
}

func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceFile writes a file so that a reader sees the old file or the new file whole, also after a crash.
func replaceFile(path string, v any) error {
	if err := writeJSON(path+tmpSuffix, v); err != nil {
		return err
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

// SyncDir makes new names and renames in a folder last over a loss of power.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
