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

// WriteFolder writes tensors into new files of dir, which is made if need be: into the one of a name such as
// model.safetensors, or, where o.ShardBytes needs more, into model-00001-of-00003.safetensors and so on with an index. What
// is written is a function of the tensors and o alone, and the files' names and offsets one of the tensors' shapes and o.
// The numbers are encoded a piece at a time.
func WriteFolder(ctx context.Context, dir, name string, tensors []gpu.Tensor, o gpu.ExportOptions) ([]gpu.File, error) {
	dtype, err := Of(o.DType)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	parts := Deal(tensors, dtype, o.ShardBytes)
	var files []gpu.File
	where := index{WeightMap: map[string]string{}}
	for i, part := range parts {
		file := name
		if len(parts) > 1 {
			ext := filepath.Ext(name)
			file = fmt.Sprintf("%s-%05d-of-%05d%s", strings.TrimSuffix(name, ext), i+1, len(parts), ext)
		}
		written, err := writeFile(ctx, filepath.Join(dir, file), part, dtype)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files = append(files, written)
		for _, t := range part {
			where.WeightMap[t.Name] = file
			where.Metadata.TotalSize += int64(len(t.Data) * dtype.size())
		}
	}
	if len(parts) <= 1 {
		return files, nil
	}
	data, err := json.MarshalIndent(where, "", "  ")
	if err != nil {
		return nil, err
	}
	data = append(data, '\n')
	if err := os.WriteFile(filepath.Join(dir, IndexName(name)), data, 0o644); err != nil {
		return nil, err
	}
	return append(files, gpu.File{Name: IndexName(name), Size: int64(len(data))}), nil
}

// Deal cuts tensors, in order, into runs of at most limit bytes of numbers; a larger tensor is alone. A limit of 0 or less is
// none.
func Deal(tensors []gpu.Tensor, dtype DType, limit int64) [][]gpu.Tensor {
	var out [][]gpu.Tensor
	var size int64
	for _, t := range tensors {
		n := int64(t.Elements() * dtype.size())
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
