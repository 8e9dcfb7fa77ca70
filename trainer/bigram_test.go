package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// The bigram's folders and its calls over parts.

func (e *bigram) Limits() gpu.Limits { return gpu.Limits{Ranks: 1} }

func (e *bigram) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	for i, b := range parts {
		o, err := e.Forward(ctx, b, false)
		if err == nil {
			err = each(i, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *bigram) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) (*gpu.Gradients, error)) error {
	for i, b := range parts {
		o, err := e.Forward(ctx, b, true)
		if err != nil {
			return err
		}
		g, err := each(i, o)
		if err != nil {
			return err
		}
		if g == nil {
			continue
		}
		if err := e.Backward(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func (e *bigram) Discard(context.Context) error {
	clear(e.grad)
	return nil
}

// tensors are the weights, over the engine's own memory.
func (e *bigram) tensors() (policy, head []gpu.Tensor) {
	policy = []gpu.Tensor{{Name: "table", Shape: []int{e.vocab, e.vocab}, Data: e.table}}
	if e.values != nil {
		head = []gpu.Tensor{{Name: gpu.ValueHeadTensor, Shape: []int{1, e.vocab}, Data: e.values}}
	}
	return policy, head
}

func (e *bigram) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	policy, head := e.tensors()
	files, err := safetensors.WriteFolder(ctx, dir, gpu.WeightsFile, policy, o)
	if err == nil && head != nil {
		var more []gpu.File
		more, err = safetensors.WriteFolder(ctx, dir, gpu.ValueHeadFile, head, o)
		files = append(files, more...)
	}
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(e.Config())
	if err != nil {
		return nil, err
	}
	files = append(files, gpu.File{Name: gpu.ConfigFile, Size: int64(len(data))})
	return gpu.Written(files), os.WriteFile(filepath.Join(dir, gpu.ConfigFile), data, 0o644)
}

func (e *bigram) Import(ctx context.Context, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, gpu.ConfigFile))
	if err != nil {
		return err
	}
	var c gpu.Config
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if c.VocabSize != e.vocab {
		return fmt.Errorf("%w: vocab_size is %d, the model's is %d", gpu.ErrMismatch, c.VocabSize, e.vocab)
	}
	clear(e.grad)
	policy, head := e.tensors()
	if err := read(ctx, dir, gpu.WeightsFile, policy); err != nil {
		return err
	}
	if !c.ValueHead {
		clear(e.values)
		return nil
	}
	return read(ctx, dir, gpu.ValueHeadFile, head)
}

func read(ctx context.Context, dir, name string, tensors []gpu.Tensor) error {
	if len(tensors) == 0 {
		return nil
	}
	f, err := safetensors.OpenFolder(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, x := range tensors {
		if err := f.Read(ctx, x.Name, x.Data); err != nil {
			return err
		}
	}
	return nil
}

func (e *bigram) moments() []gpu.Tensor {
	return []gpu.Tensor{{Name: "m", Shape: []int{len(e.momentum)}, Data: e.momentum}}
}

func (e *bigram) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	_, err := safetensors.WriteFolder(ctx, dir, gpu.OptimizerFile, e.moments(), gpu.ExportOptions{})
	return e.steps, err
}

func (e *bigram) LoadOptimizer(ctx context.Context, dir string, steps int64) error {
	e.steps = steps
	return read(ctx, dir, gpu.OptimizerFile, e.moments())
}

func (e *bigram) ResetOptimizer(context.Context) error {
	e.steps = 0
	clear(e.momentum)
	return nil
}
