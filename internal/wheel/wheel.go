package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// wheel is the package for a platform (https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
type wheel struct {
	version string
	tags    []string // of the platform
	program []byte
	// sources are the package's files by their path in the wheel; licenses are those of the tree.
	sources, licenses map[string][]byte
	// metadata is the part of METADATA after the version.
	metadata string
}

// entry is a file of a wheel.
type entry struct {
	path       string
	data       []byte
	executable bool
}

// readSources reads the package, its metadata and the licences below the tree's root.
func (w *wheel) readSources(root string) error {
	w.sources, w.licenses = map[string][]byte{}, map[string][]byte{}
	folder := filepath.Join(root, "python", "weir")
	names, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, n := range names {
		if ext := filepath.Ext(n.Name()); n.IsDir() || ext != ".py" && ext != ".typed" {
			continue
		}
		if w.sources["weir/"+n.Name()], err = os.ReadFile(filepath.Join(folder, n.Name())); err != nil {
			return err
		}
	}
	for _, name := range []string{"LICENSE", "NOTICE"} {
		if w.licenses[name], err = os.ReadFile(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	project, err := os.ReadFile(filepath.Join(root, "python", "pyproject.toml"))
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(root, "python", "README.md"))
	if err != nil {
		return err
	}
	w.metadata, err = formatMetadata(string(project), string(readme))
	return err
}

// name is the wheel's file name.
func (w *wheel) name() string {
	return fmt.Sprintf("%s-py3-none-%s.whl", w.stem(), strings.Join(w.tags, "."))
}

// stem is the name and the version, as the wheel's folders begin.
func (w *wheel) stem() string { return "weir_rl-" + w.version }

// entries returns the wheel's files but RECORD, in order.
func (w *wheel) entries() []entry {
	info := w.stem() + ".dist-info/"
	var tags strings.Builder
	for _, t := range w.tags {
		fmt.Fprintf(&tags, "Tag: py3-none-%s\n", t)
	}
	out := []entry{
		{path: w.stem() + ".data/scripts/weir", data: w.program, executable: true},
		{path: info + "METADATA", data: []byte("Metadata-Version: 2.4\nName: weir-rl\nVersion: " + w.version + "\n" + w.metadata)},
		{path: info + "WHEEL", data: []byte("Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\n" + tags.String())},
	}
	for p, data := range w.sources {
		out = append(out, entry{path: p, data: data})
	}
	for p, data := range w.licenses {
		out = append(out, entry{path: info + "licenses/" + p, data: data})
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return out
}

// pack returns the wheel's bytes.
func (w *wheel) pack() ([]byte, error) {
	entries := w.entries()
	record := path.Join(w.stem()+".dist-info", "RECORD")
	var lines strings.Builder
	for _, e := range entries {
		sum := sha256.Sum256(e.data)
		fmt.Fprintf(&lines, "%s,sha256=%s,%d\n", e.path, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.data))
	}
	lines.WriteString(record + ",,\n")
	entries = append(entries, entry{path: record, data: []byte(lines.String())}) // last, as the specification recommends

	var out bytes.Buffer
	z := zip.NewWriter(&out)
	z.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.BestCompression) })
	for _, e := range entries {
		// A zip knows no earlier time.
		h := &zip.FileHeader{Name: e.path, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(0o644)
		if e.executable {
			h.SetMode(0o755)
		}
		f, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
