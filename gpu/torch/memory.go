package torch

import (
	"os"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

var (
	_ gpu.MemoryEstimator = Backend{}
	_ gpu.DeviceMemory    = Backend{}
)

// OnDevice reports whether the memory is a GPU's: where torch.device is cuda or, with auto, where the system has a GPU's files.
func (b Backend) OnDevice() bool {
	switch b.Config.Device {
	case "cuda":
		return true
	case "cpu":
		return false
	}
	return slices.ContainsFunc([]string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg", "/dev/kfd"}, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// counts are the numbers from which a model's memory is computed.
type counts struct {
	// all are the model's numbers, trained the trained numbers, low the adapters'.
	all, trained, low int64
	// compute and stored are the bytes of a number in products and in the weights that are kept.
	compute, stored int64
	// cut is the number of ranks among which weights, gradients and moments are cut; whole is the number of copies of each in
	// all.
	cut, whole int64
}

func (b Backend) countNumbers(cfg gpu.Config) counts {
	c := counts{compute: 4, cut: 1, whole: int64(max(b.Config.Ranks, 1))}
	if b.Config.DType == "bfloat16" || b.Config.DType == "auto" && b.OnDevice() {
		c.compute = 2
	}
	if c.stored = 4; !b.Config.Masters {
		c.stored = c.compute
	}
	for _, t := range cfg.Layout() {
		c.all += int64(t.Elements())
	}
	if c.trained = c.all; b.LoRA.Rank > 0 {
		for _, t := range b.LoRA.Layout(cfg) {
			c.low += int64(t.Elements())
		}
		c.trained = c.low
	}
	if cfg.Transformers == nil && (b.Config.Shard == "fsdp" || b.Config.Shard == "auto" && b.OnDevice() && c.whole > 1) {
		c.cut, c.whole = c.whole, 1
	}
	return c
}

// TrainingMemory is the need of all ranks together, each with a part of so many tokens. It is computed from shapes, as the
// worker's model keeps the inputs of its backward pass, with an attention that keeps no scores. torch.attention plain keeps
// them too; a part is then taken to be a single sequence.
func (b Backend) TrainingMemory(cfg gpu.Config, tokens int) gpu.Memory {
	c := b.countNumbers(cfg)
	out := gpu.Memory{{Name: "weights", Bytes: c.whole * (c.all*c.stored + 4*c.low)}}
	if c.stored != c.compute {
		copies := c.all * c.compute // of the matrices in the products' type, which the backward pass needs
		if b.Config.Recompute {
			copies /= int64(cfg.NumLayers)
		}
		out = append(out, gpu.MemoryPart{Name: "weights for the products", Bytes: int64(b.Config.Ranks) * copies})
	}
	gradients := 4 * c.trained
	if b.LoRA.Rank == 0 {
		gradients = c.stored * c.trained
	}
	return append(out,
		gpu.MemoryPart{Name: "gradients", Bytes: c.whole * gradients},
		gpu.MemoryPart{Name: "moments", Bytes: c.whole * 8 * c.trained},
		gpu.MemoryPart{Name: "activations", Bytes: int64(b.Config.Ranks) * b.activationBytes(cfg, c, int64(b.boundedTokens(tokens)))})
}

// boundedTokens is the number of tokens that a rank runs at once.
func (b Backend) boundedTokens(tokens int) int {
	if b.Config.MaxTokens > 0 {
		return min(tokens, b.Config.MaxTokens)
	}
	return tokens
}

// activationBytes is the memory that a rank's backward pass needs for a part.
func (b Backend) activationBytes(cfg gpu.Config, c counts, tokens int64) int64 {
	d, ff := int64(cfg.HiddenSize), int64(cfg.IntermediateSize)
	q, kv := int64(cfg.NumHeads*cfg.AttentionDim()), int64(cfg.NumKVHeads*cfg.AttentionDim())
	// The two norms' outputs and inputs, queries, keys and values, the attention's output, and the feed-forward's four rows; of the
	// norms also two rows each in float32.
	layer := tokens * (c.compute*(4*d+2*q+2*kv+4*ff) + 4*4*d)
	if b.Config.Attention == "plain" {
		layer += 2 * c.compute * int64(cfg.NumHeads) * tokens * tokens
	}
	kept := int64(cfg.NumLayers) * layer
	if b.Config.Recompute {
		kept = int64(cfg.NumLayers)*tokens*c.compute*d + layer
	}
	return kept + headRoom(cfg, tokens)
}

// headRoom is the memory of the logits of a chunk of rows, their exponentials and a further copy, in float32.
func headRoom(cfg gpu.Config, tokens int64) int64 {
	const chunk = 1 << 27 // as head.py has it
	rows := max(16, min(2048, chunk/int64(cfg.VocabSize)))
	return 3 * 4 * min(tokens, rows) * int64(cfg.VocabSize)
}

// EvaluatingMemory is the need of all ranks without gradients: a single block's activations at a time.
func (b Backend) EvaluatingMemory(cfg gpu.Config, tokens int) gpu.Memory {
	c := b.countNumbers(cfg)
	d, ff := int64(cfg.HiddenSize), int64(cfg.IntermediateSize)
	n := int64(b.boundedTokens(tokens))
	return gpu.Memory{
		{Name: "weights", Bytes: c.whole * c.all * c.stored},
		{Name: "activations", Bytes: int64(b.Config.Ranks) * (n*(c.compute*(4*d+4*ff)+8*d) + headRoom(cfg, n))},
	}
}

// DecodingMemory is the need of a sampler, in a single process: weights in the products' type, and the caches in pages. A swap
// reads a version tensor by tensor into weights of its own.
func (b Backend) DecodingMemory(cfg gpu.Config, _ gpu.DecoderOptions, tokens int64, swapping bool) gpu.Memory {
	c := b.countNumbers(cfg)
	out := gpu.Memory{{Name: "weights", Bytes: c.all * c.compute}}
	if swapping && !b.OnDevice() { // a GPU's waits in the machine's memory
		out = append(out, gpu.MemoryPart{Name: "the next version's weights", Bytes: c.all * c.compute})
	}
	cache := tokens * int64(cfg.NumLayers) * 2 * int64(cfg.NumKVHeads*cfg.AttentionDim()) * c.compute
	return append(out, gpu.MemoryPart{Name: "KV cache", Bytes: cache})
}
