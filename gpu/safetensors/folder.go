package safetensors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// Folder is the tensors of a model folder's files, their headers read and checked. The files are mapped into memory where
// the system can, and their numbers read when asked for. Its methods may be called by several goroutines, but for Add and Close.
type Folder struct {
	files []*openFile
	// at is the place of each tensor.
	at map[string]place
}

type openFile struct {
	*os.File
	name string
	size int64
	// data is the whole file, mapped; nil where it is not.
	data []byte
	body int64
	list []located
}

type place struct{ file, tensor int }

// OpenFolder opens the tensors that a folder keeps under a name such as model.safetensors: in that file, or in the files that
// model.safetensors.index.json names if it is there. Errors name the file and the tensor; errors of broken files wrap
// ErrMalformed.
func OpenFolder(dir, name string) (*Folder, error) {
	f := &Folder{at: map[string]place{}}
	if err := f.openFile(dir, name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenFiles opens the tensors of files, wherever they lie.
func OpenFiles(paths []string) (*Folder, error) {
	f := &Folder{at: map[string]place{}}
	for _, path := range paths {
		if err := f.Add(filepath.Split(path)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// IndexName is the name of the index of files that stand for the file of a name.
func IndexName(name string) string { return name + ".index.json" }

// index is the index file.
type index struct {
	Metadata struct {
		TotalSize int64 `json:"total_size"`
	} `json:"metadata"`
	// WeightMap has the file of each tensor.
	WeightMap map[string]string `json:"weight_map"`
}

func (f *Folder) openFile(dir, name string) error {
	data, err := os.ReadFile(filepath.Join(dir, IndexName(name)))
	if errors.Is(err, os.ErrNotExist) {
		return f.Add(dir, name)
	}
	if err != nil {
		return err
	}
	// The metadata is not checked: other programs write what they like there, and the files themselves hold all that counts.
	var parsed struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &parsed); err != nil {
		return fmt.Errorf("parse %s: %w", IndexName(name), err)
	}
	if len(parsed.WeightMap) == 0 {
		return fmt.Errorf("%s: weight_map is empty", IndexName(name))
	}
	files := map[string]bool{}
	for _, file := range parsed.WeightMap {
		files[file] = true
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err == nil && !files[name] {
		return fmt.Errorf("the folder has %s and %s, which names other files: remove the one that is not the model", name, IndexName(name))
	}
	var faults []error
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(file) || filepath.Base(file) != file {
			return fmt.Errorf("%s: %q is not the name of a file in the folder", IndexName(name), file)
		}
		err := f.Add(dir, file)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%s is missing, which %s names: copy it into the folder: %w", file, IndexName(name), os.ErrNotExist)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return f.agreeWithIndex(IndexName(name), parsed.WeightMap)
}

// agreeWithIndex reports every difference between the files' contents and an index.
func (f *Folder) agreeWithIndex(index string, says map[string]string) error {
	var faults []error
	for _, o := range f.files {
		for _, t := range o.list {
			switch file, ok := says[t.name]; {
			case !ok:
				faults = append(faults, fmt.Errorf("%s: tensor %q is not where %s says: it names no file for it", o.name, t.name, index))
			case file != o.name:
				faults = append(faults, fmt.Errorf("%s: tensor %q is not where %s says: %q", o.name, t.name, index, file))
			}
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(says)) {
		if !f.Has(tensor) {
			faults = append(faults, fmt.Errorf("%s: tensor %q is missing, which %s says is there", says[tensor], tensor, index))
		}
	}
	if len(faults) > 0 {
		faults = append(faults, fmt.Errorf("%s and the files are not of one model: copy them all from the same place", index))
	}
	return errors.Join(faults...)
}

// Add opens another file. A tensor that is in two files is refused.
func (f *Folder) Add(dir, name string) error {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	o := &openFile{File: file, name: name}
	f.files = append(f.files, o)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if o.size = info.Size(); !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a plain file", name)
	}
	if o.list, o.body, err = readHeader(file, o.size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o.data = mapFile(file, o.size)
	for i, t := range o.list {
		if other, twice := f.at[t.name]; twice {
			return fmt.Errorf("%s: tensor %q is in %s too", name, t.name, f.files[other.file].name)
		}
		f.at[t.name] = place{len(f.files) - 1, i}
	}
	return nil
}

// Close closes the files; nothing may be read after it.
func (f *Folder) Close() error {
	var errs []error
	for _, o := range f.files {
		errs = append(errs, unmapFile(o.data), o.File.Close())
		o.data = nil
	}
	f.files = nil
	return errors.Join(errs...)
}

// Names are the names of the open files.
func (f *Folder) Names() []string {
	var out []string
	for _, o := range f.files {
		out = append(out, o.name)
	}
	return out
}

// Stored is a file of a folder.
type Stored struct {
	Name string
	// Size in bytes; Body of them are before the numbers.
	Size, Body int64
	// Tensors in the order of their numbers.
	Tensors []StoredTensor
}

// StoredTensor is a tensor of a file.
type StoredTensor struct {
	Name  string
	Shape []int
	DType DType
}

// Files lists the files in the order of their names, with their contents.
func (f *Folder) Files() []Stored {
	out := make([]Stored, len(f.files))
	for i, o := range f.files {
		out[i] = Stored{Name: o.name, Size: o.size, Body: o.body}
		for _, t := range o.list {
			out[i].Tensors = append(out[i].Tensors, StoredTensor{t.name, t.shape, t.dtype})
		}
	}
	return out
}

// Tensors lists the tensors, without data, file after file in the order of their numbers.
func (f *Folder) Tensors() []gpu.Tensor {
	var out []gpu.Tensor
	for _, o := range f.files {
		for _, t := range o.list {
			out = append(out, gpu.Tensor{Name: t.name, Shape: t.shape})
		}
	}
	return out
}

// Has reports whether there is a tensor of a name.
func (f *Folder) Has(name string) bool {
	_, ok := f.at[name]
	return ok
}

// DType is the type in which a tensor's numbers are stored, "" for a tensor that is not there.
func (f *Folder) DType(name string) DType {
	p, ok := f.at[name]
	if !ok {
		return ""
	}
	return f.files[p.file].list[p.tensor].dtype
}

// Read reads a tensor's numbers into data, which has as many.
func (f *Folder) Read(ctx context.Context, name string, data []float32) error {
	t, err := f.findEntry(name)
	if err != nil {
		return err
	}
	if n := t.elementCount(); n != len(data) {
		return fmt.Errorf("tensor %q has %d numbers, there is room for %d", name, n, len(data))
	}
	size := t.dtype.elementSize()
	return f.Raw(ctx, name, func(at int, b []byte) error {
		t.dtype.decodeNumbers(data[at:at+len(b)/size], b)
		return nil
	})
}

// findEntry is a tensor's entry.
func (f *Folder) findEntry(name string) (located, error) {
	p, ok := f.at[name]
	if !ok {
		return located{}, fmt.Errorf("tensor %q is missing", name)
	}
	return f.files[p.file].list[p.tensor], nil
}
