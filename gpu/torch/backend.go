package torch

import (
	"fmt"
	"log/slog"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// Backend makes engines and decoders over PyTorch.
type Backend struct {
	Config Config
	// Threads that a rank on the processor uses; 0 shares all cores among the ranks.
	Threads int
	// Start sets how the starting weights are drawn of an engine that imports none: as gpu/native draws them.
	Start native.Options
	// LoRA has engines train adapters beside frozen weights where its Rank is not 0.
	LoRA native.LoRA
	// Log may be nil.
	Log *slog.Logger
}

var _ gpu.Backend = Backend{}

// New makes an engine. Its processes start with the first call that needs them.
func (b Backend) New(cfg gpu.Config) (gpu.Engine, error) { return b.newEngine(cfg) }

func (b Backend) newEngine(cfg gpu.Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := b.Config.Validate(); err != nil {
		return nil, err
	}
	if err := b.checkModule(cfg); err != nil {
		return nil, err
	}
	e := &Engine{backend: b, cfg: cfg, layout: cfg.Layout()}
	e.trained = e.layout
	if b.LoRA.Rank > 0 {
		if err := b.LoRA.Validate(); err != nil {
			return nil, fmt.Errorf("lora: %w", err)
		}
		e.trained = b.LoRA.Layout(cfg)
	}
	return e, nil
}

// engineShape is the model as the ranks of an engine read it.
func (e *Engine) engineShape() map[string]any {
	out := shapeOf(e.cfg)
	if o := e.backend.LoRA; o.Rank > 0 {
		out["lora"] = map[string]any{"rank": o.Rank, "scale": o.Alpha / float64(o.Rank), "targets": o.Targets}
	}
	return out
}

// shapeOf is a model as the worker reads it.
func shapeOf(c gpu.Config) map[string]any {
	if c.Transformers != nil {
		return moduleShape(c)
	}
	return map[string]any{
		"vocab": c.VocabSize, "hidden": c.HiddenSize, "intermediate": c.IntermediateSize, "layers": c.NumLayers,
		"heads": c.NumHeads, "kv_heads": c.NumKVHeads, "head_dim": c.AttentionDim(), "eps": c.RMSNormEps, "tied": c.TieEmbeddings,
		"value_head": c.ValueHead, "qkv_bias": c.QKVBias, "qk_norm": c.QKNorm, "rope_speeds": c.RopeSpeeds(),
	}
}
