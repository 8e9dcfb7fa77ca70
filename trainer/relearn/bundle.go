package relearn

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// The entries of a bundle: a tar file, compressed by zstd. The first says what the bundle is, and the last lists the others.
const (
	bundleFormat = 1
	headEntry    = "bundle.json"
	lastEntry    = "END.json"
	// storeEntry is the folder of the checkpoint, the records, the batches and the reference policy.
	storeEntry = "checkpoints"
	// ConfigEntry is the run's configuration.
	ConfigEntry = "config.yaml"
)

// Bundle says what a bundle holds.
type Bundle struct {
	Format int    `json:"format"`
	Run    string `json:"run"`
	// Step is the first step that the bundle is made for, and Until the last.
	Step  int64 `json:"step"`
	Until int64 `json:"until"`
	// Version and Commit name the build that trained the steps.
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

// bundleWriter writes the entries of a bundle, and remembers their hashes.
type bundleWriter struct {
	tar    *tar.Writer
	hashes map[string]string
}

// WriteBundle writes all that a plan's steps are learnt from: the checkpoint, the records and the batches, of the store dir, the reference
// policy where there is one, and the run's configuration.
func WriteBundle(out io.Writer, b Bundle, dir string, p *Plan, config []byte) error {
	compressed, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	w := &bundleWriter{tar: tar.NewWriter(compressed), hashes: map[string]string{}}
	b.Format = bundleFormat
	err = errors.Join(w.addAll(b, dir, p, config), w.tar.Close(), compressed.Close())
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

func (w *bundleWriter) addAll(b Bundle, dir string, p *Plan, config []byte) error {
	head, err := json.Marshal(b)
	if err != nil {
		return err
	}
	last := b.Until
	if p.Next != nil { // it names the version that the last step made
		last++
	}
	records, err := checkpoint.RawRecords(dir, p.From.State.Step, last)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		name string
		data []byte
	}{{headEntry, head}, {ConfigEntry, config}, {path.Join(storeEntry, checkpoint.RecordFile), records}} {
		if err := w.addData(x.name, x.data); err != nil {
			return err
		}
	}
	if err := w.addFolder(dir, p.From.Dir); err != nil {
		return err
	}
	if reference := checkpoint.ReferenceDir(dir); reference != "" {
		if err := w.addFolder(dir, reference); err != nil {
			return err
		}
	}
	for _, r := range p.Records {
		if err := w.addFile(dir, checkpoint.BatchPath(dir, r.Step)); err != nil {
			return err
		}
	}
	list, err := json.Marshal(w.hashes)
	if err != nil {
		return err
	}
	return w.addData(lastEntry, list)
}

func (w *bundleWriter) addData(name string, data []byte) error {
	return w.addEntry(name, int64(len(data)), bytes.NewReader(data))
}

func (w *bundleWriter) addEntry(name string, size int64, data io.Reader) error {
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w.tar, hash), data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.hashes[name] = hex.EncodeToString(hash.Sum(nil))
	return nil
}

// addFolder adds a folder of the store.
func (w *bundleWriter) addFolder(store, dir string) error {
	return filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return w.addFile(store, file)
	})
}

// addFile adds a file of the store.
func (w *bundleWriter) addFile(store, file string) error {
	name, err := filepath.Rel(store, file)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return w.addEntry(path.Join(storeEntry, filepath.ToSlash(name)), info.Size(), f)
}

// errNoBundle is the fault of a file that was cut, changed, or never was a bundle.
var errNoBundle = errors.New("it is no whole bundle")

// StoreIn is the store of checkpoints in the folder of an unpacked bundle.
func StoreIn(dir string) string { return filepath.Join(dir, storeEntry) }

// ReadBundle unpacks a bundle into an empty folder, and returns what it holds. A bundle that was cut or changed is refused.
func ReadBundle(in io.Reader, dir string) (b *Bundle, err error) {
	decoder, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	hashes := map[string]string{}
	entries := tar.NewReader(decoder)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(hashes) == 0 && header.Name != headEntry {
			err = fmt.Errorf("it begins with %q", header.Name)
		}
		if err == nil {
			hashes[header.Name], err = unpackEntry(dir, header, entries)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoBundle, err)
		}
	}
	// The sum of the whole stands behind the end of the tar file.
	if _, err := io.Copy(io.Discard, decoder); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBundle, err)
	}
	if err := checkList(dir, hashes); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBundle, err)
	}
	b = &Bundle{}
	data, err := os.ReadFile(filepath.Join(dir, headEntry))
	if err == nil {
		err = json.Unmarshal(data, b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBundle, err)
	}
	if b.Format != bundleFormat {
		return nil, fmt.Errorf("the bundle has format %d, and this build reads format %d: use the build that wrote it, weir %s",
			b.Format, bundleFormat, b.Version)
	}
	return b, nil
}

// unpackEntry writes an entry to a file, and returns its hash.
func unpackEntry(dir string, header *tar.Header, data io.Reader) (hash string, err error) {
	if header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) {
		return "", fmt.Errorf("entry %q does not belong into a bundle", header.Name)
	}
	to := filepath.Join(dir, filepath.FromSlash(header.Name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), data)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}

// checkList compares the unpacked entries with the list at the bundle's end.
func checkList(dir string, have map[string]string) error {
	data, err := os.ReadFile(filepath.Join(dir, lastEntry))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it ends before its last entry")
	}
	if err != nil {
		return err
	}
	var want map[string]string
	if err := json.Unmarshal(data, &want); err != nil {
		return err
	}
	delete(have, lastEntry)
	if maps.Equal(want, have) {
		return nil
	}
	var differ []string
	for _, name := range unionOfKeys(want, have) {
		if want[name] != have[name] {
			differ = append(differ, name)
		}
	}
	return fmt.Errorf("it has other bytes of %s than were written", strings.Join(differ, ", "))
}
