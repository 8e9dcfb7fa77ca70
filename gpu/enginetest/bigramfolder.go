package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Limits is gpu.Engine's.
func (e *Bigram) Limits() gpu.Limits { return gpu.Limits{Ranks: 1, Repeats: true} }

// Evaluate is gpu.Engine's.
func (e *Bigram) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	for i, b := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(i, e.forward(b)); err != nil {
			return err
		}
	}
	return nil
}

// Accumulate is gpu.Engine's.
func (e *Bigram) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) (*gpu.Gradients, error)) error {
	for i, b := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		g, err := each(i, e.forward(b))
		if err != nil {
			return err
		}
		if g != nil {
			e.backward(b, g)
		}
	}
	return nil
}

// Discard is gpu.Engine's.
func (e *Bigram) Discard(context.Context) error {
	clear(e.grad)
	return nil
}

// weightTensors are the weights, over the engine's own memory.
func (e *Bigram) weightTensors() (policy, head []gpu.Tensor) {
	policy = []gpu.Tensor{{Name: "table", Shape: []int{e.vocab, e.vocab}, Data: e.Table}}
	if e.Values != nil {
		head = []gpu.Tensor{{Name: gpu.ValueHeadTensor, Shape: []int{1, e.vocab}, Data: e.Values}}
	}
	return policy, head
}

// describedConfig fills in the keys that a Hugging Face config.json must have. The engine reads none of them.
func describedConfig(c gpu.Config) gpu.Config {
	if c.ModelType == "" {
		c.ModelType, c.HiddenSize, c.IntermediateSize, c.NumLayers, c.NumHeads, c.NumKVHeads = "llama", 2, 2, 1, 1, 1
		c.RopeTheta, c.RMSNormEps = 1e4, 1e-6
		c.MaxPositions = max(c.MaxPositions, 1)
	}
	return c
}

// Export is gpu.Engine's.
func (e *Bigram) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	policy, head := e.weightTensors()
	files, err := safetensors.WriteFolder(ctx, dir, gpu.WeightsFile, policy, o)
	if err == nil && head != nil {
		var more []gpu.File
		more, err = safetensors.WriteFolder(ctx, dir, gpu.ValueHeadFile, head, o)
		files = append(files, more...)
	}
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(describedConfig(e.Config()))
	if err != nil {
		return nil, err
	}
	files = append(files, gpu.File{Name: gpu.ConfigFile, Size: int64(len(data))})
	return gpu.Written(files), os.WriteFile(filepath.Join(dir, gpu.ConfigFile), data, 0o644)
}

// Import is gpu.Engine's.
func (e *Bigram) Import(ctx context.Context, dir string) error {
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
	policy, head := e.weightTensors()
	if err := readTensors(ctx, dir, gpu.WeightsFile, policy); err != nil {
		return err
	}
	if !c.ValueHead {
		clear(e.Values)
		return nil
	}
	return readTensors(ctx, dir, gpu.ValueHeadFile, head)
}

// readTensors fills tensors from a folder's files of a name.
func readTensors(ctx context.Context, dir, name string, tensors []gpu.Tensor) error {
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

func (e *Bigram) momentTensors() []gpu.Tensor {
	return []gpu.Tensor{{Name: "m", Shape: []int{len(e.Momentum)}, Data: e.Momentum}}
}

// SaveOptimizer is gpu.Engine's.
func (e *Bigram) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	_, err := safetensors.WriteFolder(ctx, dir, gpu.OptimizerFile, e.momentTensors(), gpu.ExportOptions{})
	return e.Steps, err
}

// LoadOptimizer is gpu.Engine's.
func (e *Bigram) LoadOptimizer(ctx context.Context, dir string, steps int64) error {
	e.Steps = steps
	return readTensors(ctx, dir, gpu.OptimizerFile, e.momentTensors())
}

// ResetOptimizer is gpu.Engine's.
func (e *Bigram) ResetOptimizer(context.Context) error {
	e.Steps = 0
	clear(e.Momentum)
	return nil
}
