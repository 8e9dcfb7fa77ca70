package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
)

// wholePublisher publishes every version whole, in shards named by their content.
type wholePublisher struct {
	cfg       Publish
	stream    Stream
	config    gpu.Config
	tokenizer []byte
}

func newWholePublisher(cfg Publish, deps Deps) *wholePublisher {
	return &wholePublisher{cfg: cfg, stream: deps.Stream, config: deps.Engine.Config(), tokenizer: deps.Tokenizer}
}

// Publish sends the shards, each encoded when it is its turn, then the manifest.
func (p *wholePublisher) Publish(ctx context.Context, v Version) error {
	config, err := json.Marshal(p.config)
	if err != nil {
		return fmt.Errorf("encode model configuration: %w", err)
	}
	m := &schemas.Manifest{
		Run: p.stream.Name(), Version: v.Version, Base: schemas.NoBase, DType: p.cfg.DType, PublishedAt: v.At,
		Config: config, ConfigHash: schemas.ContentHash(config), TokenizerHash: schemas.ContentHash(p.tokenizer),
	}
	dtype := safetensors.F32
	if p.cfg.DType == "bfloat16" {
		dtype = safetensors.BF16
	}
	parts := split(v.Weights.Tensors, p.cfg.ShardBytes, p.cfg.DType)
	for range parts {
		m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors})
	}
	return p.stream.PublishWeights(ctx, m, func(i int) ([]byte, error) {
		return safetensors.Encode(&gpu.Weights{Tensors: parts[i]}, dtype)
	})
}

// fits fails where the stream takes no manifest of as many shards as these weights make: better before they are trained and
// kept than when they are to be published.
func (p *wholePublisher) fits(w *gpu.Weights) error {
	stream, ok := p.stream.(interface {
		ManifestFits(m *schemas.Manifest) error
	})
	if !ok {
		return nil
	}
	config, err := json.Marshal(p.config)
	if err != nil {
		return fmt.Errorf("encode model configuration: %w", err)
	}
	m := &schemas.Manifest{
		Run: p.stream.Name(), Version: math.MaxInt64, Base: math.MaxInt64, DType: p.cfg.DType, PublishedAt: time.Now(),
		Config: config, ConfigHash: schemas.ContentHash(nil), TokenizerHash: schemas.ContentHash(nil),
	}
	for range split(w.Tensors, p.cfg.ShardBytes, p.cfg.DType) {
		m.Shards = append(m.Shards, schemas.Shard{Hash: schemas.ContentHash(nil), Size: math.MaxInt64, Encoding: schemas.EncodingSafetensors, FullHash: schemas.ContentHash(nil)})
	}
	return stream.ManifestFits(m)
}

// split deals tensors, in order, into runs of at most limit bytes; a larger tensor is alone.
func split(tensors []gpu.Tensor, limit int64, dtype string) [][]gpu.Tensor {
	width := int64(4)
	if dtype == "bfloat16" {
		width = 2
	}
	var out [][]gpu.Tensor
	var size int64
	for _, t := range tensors {
		n := int64(len(t.Data)) * width
		if len(out) == 0 || size+n > limit {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], t)
		size += n
	}
	return out
}
