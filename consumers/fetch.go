package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// WeightLoader reads a version's bytes; a *weights.Loader does.
type WeightLoader interface {
	// Load reads the whole safetensors bytes of each of m.AllShards(), verified by their hashes.
	Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error)
}

// Fetch loads, verifies and decodes a published version, and merges an adapter into its base. The manifest must be of the tokenizer with
// the given hash (see Hash); "" takes any tokenizer. An error wraps ErrBadWeights when the manifest or a shard is at fault: then the
// version is the same however often it is fetched.
func Fetch(ctx context.Context, from WeightLoader, m *schemas.Manifest, tokenizerHash string) (Snapshot, error) {
	config, err := describeManifest(m, tokenizerHash)
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Version: m.Version, Config: config, Weights: &gpu.Weights{}}
	files, err := from.Load(ctx, m)
	switch {
	case errors.Is(err, streams.ErrCorruptShard):
		return Snapshot{}, fmt.Errorf("%w: %w", ErrBadWeights, err)
	case err != nil:
		return Snapshot{}, err
	}
	if m.Adapter != nil {
		s.Weights, err = mergeInMemory(m, files)
	} else {
		s.Weights.Tensors, err = decodeShards(files)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("%w: %w", ErrBadWeights, err)
	}
	return s, nil
}

// describeManifest is the model that a manifest is of. It refuses a manifest that does not say so, or is of another tokenizer.
func describeManifest(m *schemas.Manifest, tokenizerHash string) (c gpu.Config, err error) {
	bad := func(format string, args ...any) (gpu.Config, error) {
		return gpu.Config{}, fmt.Errorf("%w: "+format, append([]any{ErrBadWeights}, args...)...)
	}
	if got := schemas.ContentHash(m.Config); got != m.ConfigHash {
		return bad("the model configuration has hash %s, the manifest says %s", got, m.ConfigHash)
	}
	if tokenizerHash != "" && m.TokenizerHash != tokenizerHash {
		return bad("they are of tokenizer %s, those in use of %s", m.TokenizerHash, tokenizerHash)
	}
	if err := json.Unmarshal(m.Config, &c); err != nil {
		return bad("read the model configuration: %w", err)
	}
	if err := c.Validate(); err != nil {
		return bad("%w", err)
	}
	return c, nil
}

// decodeShards decodes the shards side by side, and drops the bytes of each when it is decoded.
func decodeShards(files [][]byte) ([]gpu.Tensor, error) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	shards := make([]*gpu.Weights, len(files))
	for i := range files {
		group.Go(func() (err error) {
			if shards[i], err = safetensors.Decode(files[i]); err != nil {
				return fmt.Errorf("decode shard %d: %w", i, err)
			}
			files[i] = nil
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []gpu.Tensor
	for _, w := range shards {
		out = append(out, w.Tensors...)
	}
	return out, nil
}
