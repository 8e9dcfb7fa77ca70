package consumers

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/adapter"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
)

// A version that is an adapter is merged where it is read, so that all that samples gets weights as ever: with the bits that the
// trainer's own export of them has.

// mergeInMemory decodes the shards of a version, after them the shards of the weights that it is added to, and merges them.
func mergeInMemory(m *schemas.Manifest, files [][]byte) (*gpu.Weights, error) {
	n := len(m.Shards)
	if len(files) != len(m.AllShards()) {
		return nil, fmt.Errorf("%d shards were read, the manifest has %d", len(files), len(m.AllShards()))
	}
	own, err := decodeShards(files[:n])
	if err != nil {
		return nil, err
	}
	frozen, err := decodeShards(files[n:])
	if err != nil {
		return nil, err
	}
	ad, err := adapter.New(own, m.Adapter.Rank, m.Adapter.Alpha)
	if err != nil {
		return nil, err
	}
	w := &gpu.Weights{Tensors: frozen}
	return w, ad.Merge(w, gpu.DType(m.DType))
}

// writeMerged merges the files of a version, after them the files of the weights that it is added to, into files of a folder: one for each
// frozen file, with the same tensors.
func writeMerged(ctx context.Context, m *schemas.Manifest, paths []string, dir string) error {
	n := len(m.Shards)
	own, err := safetensors.OpenFiles(paths[:n])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	defer func() { _ = own.Close() }() // read only
	low, err := (&gpu.Weights{Tensors: own.Tensors(), Source: own}).Resident(ctx)
	if err != nil {
		return err
	}
	frozen, err := safetensors.OpenFiles(paths[n:])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	defer func() { _ = frozen.Close() }() // read only
	ad, err := adapter.New(low.Tensors, m.Adapter.Rank, m.Adapter.Alpha)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	merged, err := ad.Over(&gpu.Weights{Tensors: frozen.Tensors(), Source: frozen}, gpu.DType(m.DType))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4))
	for i, file := range frozen.Files() {
		tensors := make([]gpu.Tensor, len(file.Tensors))
		for j, t := range file.Tensors {
			tensors[j] = gpu.Tensor{Name: t.Name, Shape: t.Shape}
		}
		group.Go(func() error {
			return safetensors.WriteFrom(ctx, filepath.Join(dir, shardName(i, len(paths)-n)), merged, tensors, gpu.DType(m.DType))
		})
	}
	return group.Wait()
}

// countModelFiles is how many files of weights a version's folder has.
func countModelFiles(m *schemas.Manifest) int {
	if m.Adapter != nil {
		return len(m.Adapter.Frozen)
	}
	return len(m.Shards)
}
