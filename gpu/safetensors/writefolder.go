package safetensors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-rl/weir/gpu"
)

// writer is a function as an io.Writer.
type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// Of is a type in the format's words.
func Of(d gpu.DType) (DType, error) {
	switch d {
	case gpu.Float32, "":
		return F32, nil
	case gpu.BFloat16:
		return BF16, nil
	}
	return "", fmt.Errorf("type %q is not supported: want %s or %s", d, gpu.Float32, gpu.BFloat16)
}

// FilePlan is a file to be written: Head, and then the numbers of Tensors, one tensor after another.
type FilePlan struct {
	// Name within the folder.
	Name string
	Head []byte
	// Tensors need no data.
	Tensors []gpu.Tensor
	// Size is the whole file's, in bytes.
	Size int64
}

// FolderPlan is the plan of a folder of tensors.
type FolderPlan struct {
	Files []FilePlan
	// Index is the index file's content, under IndexName of the plan's name; nil where there is a single file.
	Index []byte
}

// Plan lays tensors out in files: a single file of a name such as model.safetensors or, where o.ShardBytes needs more,
// model-00001-of-00003.safetensors and so on with an index. The plan is a function of the tensors' names and shapes and of o
// alone; the tensors need no data.
func Plan(name string, tensors []gpu.Tensor, o gpu.ExportOptions) (*FolderPlan, error) {
	dtype, err := Of(o.DType)
	if err != nil {
		return nil, err
	}
	parts := Deal(tensors, dtype, o.ShardBytes)
	plan := &FolderPlan{}
	where := index{WeightMap: map[string]string{}}
	for i, part := range parts {
		file := FilePlan{Name: name, Tensors: part}
		if len(parts) > 1 {
			ext := filepath.Ext(name)
			file.Name = fmt.Sprintf("%s-%05d-of-%05d%s", strings.TrimSuffix(name, ext), i+1, len(parts), ext)
		}
		head, size, err := headerOf(part, dtype)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		file.Head, file.Size = head, int64(len(head)+size)
		plan.Files = append(plan.Files, file)
		for _, t := range part {
			where.WeightMap[t.Name] = file.Name
			where.Metadata.TotalSize += int64(t.Elements() * dtype.elementSize())
		}
	}
	if len(parts) <= 1 {
		return plan, nil
	}
	plan.Index, err = json.MarshalIndent(where, "", "  ")
	plan.Index = append(plan.Index, '\n')
	return plan, err
}

// Written are the planned files, and the index, which it writes into dir.
func (p *FolderPlan) Written(dir, name string) ([]gpu.File, error) {
	var files []gpu.File
	for _, f := range p.Files {
		files = append(files, gpu.File{Name: f.Name, Size: f.Size})
	}
	if p.Index == nil {
		return files, nil
	}
	if err := os.WriteFile(filepath.Join(dir, IndexName(name)), p.Index, 0o644); err != nil {
		return nil, err
	}
	return append(files, gpu.File{Name: IndexName(name), Size: int64(len(p.Index))}), nil
}

// WriteFolder writes tensors into new files of dir, which is made if need be, as Plan lays them out. The numbers are encoded a
// piece at a time.
func WriteFolder(ctx context.Context, dir, name string, tensors []gpu.Tensor, o gpu.ExportOptions) ([]gpu.File, error) {
	plan, err := Plan(name, tensors, o)
	if err != nil {
		return nil, err
	}
	dtype, err := Of(o.DType)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, file := range plan.Files {
		if _, err := writeFile(ctx, filepath.Join(dir, file.Name), file.Tensors, dtype); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
	}
	return plan.Written(dir, name)
}

// Deal cuts tensors, in order, into runs of at most limit bytes of numbers; a larger tensor is alone. A limit of 0 or less is
// none.
func Deal(tensors []gpu.Tensor, dtype DType, limit int64) [][]gpu.Tensor {
	var out [][]gpu.Tensor
	var size int64
	for _, t := range tensors {
		n := int64(t.Elements() * dtype.elementSize())
		if len(out) == 0 || limit > 0 && size+n > limit {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], t)
		size += n
	}
	return out
}

func writeFile(ctx context.Context, path string, tensors []gpu.Tensor, dtype DType) (_ gpu.File, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return gpu.File{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := func(b []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return f.Write(b)
	}
	if err := Write(writer(out), &gpu.Weights{Tensors: tensors}, dtype); err != nil {
		return gpu.File{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return gpu.File{}, err
	}
	return gpu.File{Name: filepath.Base(path), Size: info.Size()}, nil
}

// writePiece is how many numbers WriteFrom has in memory at once.
const writePiece = 1 << 20

// WriteFrom writes some of the tensors of w into a new file, as WriteFolder would, a piece of numbers at a time. It reads them
// from the weights' source where they have a source.
func WriteFrom(ctx context.Context, path string, w *gpu.Weights, tensors []gpu.Tensor, d gpu.DType) (err error) {
	dtype, err := Of(d)
	if err != nil {
		return err
	}
	head, _, err := headerOf(tensors, dtype)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(head); err != nil {
		return err
	}
	var room []float32
	var b []byte
	for _, t := range tensors {
		for at, n := 0, t.Elements(); at < n; at += writePiece {
			if err := ctx.Err(); err != nil {
				return err
			}
			part, err := w.Part(ctx, t, at, min(writePiece, n-at), &room)
			if err != nil {
				return err
			}
			b = dtype.appendNumbers(b[:0], part)
			if _, err := f.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}
