package safetensors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// Folder is the tensors of a model folder's files, their headers read and checked; the numbers are read when asked for.
type Folder struct {
	files []*openFile
	// at says where a tensor lies.
	at map[string]place
}

type openFile struct {
	*os.File
	name string
	body int64
	list []located
}

type place struct{ file, tensor int }

// OpenFolder opens the tensors that a folder keeps under a name such as model.safetensors: in that file, or in those that
// model.safetensors.index.json names where there is one. Errors name the file and the tensor; those of broken files wrap
// ErrMalformed.
func OpenFolder(dir, name string) (*Folder, error) {
	f := &Folder{at: map[string]place{}}
	if err := f.open(dir, name); err != nil {
		return nil, errors.Join(err, f.Close())
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

func (f *Folder) open(dir, name string) error {
	data, err := os.ReadFile(filepath.Join(dir, IndexName(name)))
	if errors.Is(err, os.ErrNotExist) {
		return f.Add(dir, name)
	}
	if err != nil {
		return err
	}
	var parsed index
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
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(file) || filepath.Base(file) != file {
			return fmt.Errorf("%s: %q is not the name of a file in the folder", IndexName(name), file)
		}
		if err := f.Add(dir, file); err != nil {
			return err
		}
		for _, t := range f.files[len(f.files)-1].list {
			if parsed.WeightMap[t.name] != file {
				return fmt.Errorf("%s: tensor %q is not where %s says: %q", file, t.name, IndexName(name), parsed.WeightMap[t.name])
			}
			delete(parsed.WeightMap, t.name)
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(parsed.WeightMap)) {
		return fmt.Errorf("%s: tensor %q is missing, which %s says is there", parsed.WeightMap[tensor], tensor, IndexName(name))
	}
	return nil
}

// Add opens one file more. A tensor that another file has is refused.
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
	if o.list, o.body, err = readHeader(file, info.Size()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i, t := range o.list {
		if other, twice := f.at[t.name]; twice {
			return fmt.Errorf("%s: tensor %q is in %s too", name, t.name, f.files[other.file].name)
		}
		f.at[t.name] = place{len(f.files) - 1, i}
	}
	return nil
}

// Close closes the files.
func (f *Folder) Close() error {
	var errs []error
	for _, o := range f.files {
		errs = append(errs, o.Close())
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

// Has says whether there is a tensor of a name.
func (f *Folder) Has(name string) bool {
	_, ok := f.at[name]
	return ok
}

// DType is how a tensor's numbers are stored, "" for one that is not there.
func (f *Folder) DType(name string) DType {
	p, ok := f.at[name]
	if !ok {
		return ""
	}
	return f.files[p.file].list[p.tensor].dtype
}

// Read reads a tensor's numbers into data, which has as many.
func (f *Folder) Read(ctx context.Context, name string, data []float32) error {
	return f.read(ctx, name, func(at, n int) []float32 { return data[at : at+n] }, nil)
}

// ErrNotFinite is returned by CheckFinite for a number that is infinite or none.
var ErrNotFinite = errors.New("a number is not finite")

// CheckFinite reads the named tensors and reports the first number that is not finite.
func (f *Folder) CheckFinite(ctx context.Context, names []string) error {
	room := make([]float32, pieceBytes)
	for _, name := range names {
		err := f.read(ctx, name, func(_, n int) []float32 { return room[:n] }, func(at int, x []float32) error {
			for i, v := range x {
				if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
					return fmt.Errorf("%w: entry %d is %g", ErrNotFinite, at+i, v)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) read(ctx context.Context, name string, into func(at, n int) []float32, then func(at int, x []float32) error) error {
	p, ok := f.at[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	o := f.files[p.file]
	t := o.list[p.tensor]
	numbers := io.NewSectionReader(o, o.body+t.begin, t.end-t.begin)
	in := func(b []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return numbers.Read(b)
	}
	if err := t.read(reader(in), make([]byte, pieceBytes), into, then); err != nil {
		return fmt.Errorf("%s: tensor %q: %w", o.name, name, err)
	}
	return nil
}

// reader is a function as an io.Reader.
type reader func(b []byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }
