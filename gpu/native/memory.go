package native

import (
	"runtime"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

var _ gpu.MemoryEstimator = Backend{}

// grownBytes is the memory of a buffer that resizeBuffer has grown, an eighth more than asked for.
func grownBytes(floats int) int64 { return 4 * int64(floats+floats/8) }

func (b Backend) workerCount() int {
	if b.Options.Threads > 0 {
		return b.Options.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// TrainingMemory counts the memory that an [Engine] has allocated by the end of its first Step.
func (b Backend) TrainingMemory(cfg gpu.Config, tokens int) gpu.Memory {
	l := newLayout(cfg)
	size, trained := int64(l.size), int64(l.size)
	activations := l.activationBytes(tokens, b.Options.Recompute) + l.backwardBytes(tokens) + b.scratchBytes(&l, tokens)
	out := gpu.Memory{{Name: "weights", Bytes: 4 * size}, {Name: "packed weights", Bytes: b.packedWeightBytes(&l)}}
	if rank := b.Options.LoRA.Rank; rank > 0 {
		trained = l.adapterSize(b.Options.LoRA)
		out = append(out, gpu.MemoryPart{Name: "adapters", Bytes: 4 * trained})
		activations += 2*grownBytes(tokens*rank) + int64(b.workerCount())*grownBytes(rowBlock*rank)
	}
	return append(out,
		gpu.MemoryPart{Name: "gradients", Bytes: 4 * trained},
		gpu.MemoryPart{Name: "moments", Bytes: 8 * trained},
		gpu.MemoryPart{Name: "activations", Bytes: activations})
}

// adapterSize is the number of parameters of the adapters and of a value head beside them.
func (l *layout) adapterSize(o LoRA) int64 {
	n := 0
	for i, sides := range [...]int{l.d + l.q, l.d + l.kv, l.d + l.kv, l.q + l.d, l.d + l.ff, l.d + l.ff, l.ff + l.d} {
		if slices.Contains(o.Targets, loraTargets[i]) {
			n += l.layers * sides * o.Rank
		}
	}
	if l.cfg.ValueHead {
		n += l.d
	}
	return int64(n)
}

// EvaluatingMemory counts the same for an engine that keeps nothing for a backward pass.
func (b Backend) EvaluatingMemory(cfg gpu.Config, tokens int) gpu.Memory {
	l := newLayout(cfg)
	once := grownBytes(tokens*l.d) + grownBytes(tokens*l.qkv) + grownBytes(tokens*l.q) + l.outputBytes(tokens)
	return gpu.Memory{
		{Name: "weights", Bytes: 4 * int64(l.size)},
		{Name: "packed weights", Bytes: b.packedWeightBytes(&l)},
		{Name: "activations", Bytes: once + b.scratchBytes(&l, tokens)},
	}
}

// DecodingMemory counts the memory that a decoder allocates, and the tensors that it keeps of its weights. They count as
// float32 unless o.DType is set.
func (b Backend) DecodingMemory(cfg gpu.Config, o gpu.DecoderOptions, tokens int64, swapping bool) gpu.Memory {
	l := newLayout(cfg)
	weights := l.packedBytes()
	if !cfg.TieEmbeddings {
		weights += 4 * int64(l.v*l.d)
	}
	if o.DType == gpu.BFloat16 {
		weights /= 2
	}
	out := gpu.Memory{{Name: "weights", Bytes: weights}}
	if swapping {
		out = append(out, gpu.MemoryPart{Name: "the next version's weights", Bytes: weights})
	}
	pages := (tokens + pageTokens - 1) / pageTokens
	return append(out, gpu.MemoryPart{Name: "KV cache", Bytes: 4 * pages * int64(l.layers*2*l.kv*pageTokens)})
}

// packedWeightBytes is the memory of an engine's packed weights.
func (b Backend) packedWeightBytes(l *layout) int64 {
	switch {
	case b.Options.DType == gpu.BFloat16 && l.cfg.TieEmbeddings:
		return l.packedBytes() / 2
	case b.Options.DType == gpu.BFloat16:
		return l.packedBytes()/2 + 2*int64(l.v*l.d) // embeddings that are not the head
	case l.isLargeModel():
		return 0
	}
	return l.packedBytes()
}

// packedBytes is the memory of the matrices laid out for repeated products, and of the head.
func (l *layout) packedBytes() int64 {
	layer := l.d*l.qkv + l.q*l.d + l.d*2*l.ff + l.ff*l.d
	return 4 * (int64(l.layers)*int64(layer) + int64(l.d)*int64(l.v))
}

// activationBytes is the memory that forward keeps for backward of a part of n tokens, the head reading all of them.
func (l *layout) activationBytes(n int, recompute bool) int64 {
	input := grownBytes(n * l.d)
	layer := grownBytes(n*l.d) + grownBytes(n*l.qkv) + grownBytes(n*l.q) + grownBytes(2*n*l.heads) + 2*grownBytes(n) + grownBytes(2*n*l.ff) + grownBytes(n*l.ff)
	if l.cfg.QKNorm {
		layer += grownBytes(n*(l.q+l.kv)) + grownBytes(n*(l.heads+l.kvHeads))
	}
	if recompute {
		return int64(l.layers)*input + layer + l.outputBytes(n)
	}
	return int64(l.layers)*(input+layer) + l.outputBytes(n)
}

// outputBytes is the memory of the last block's rows and of the outputs.
func (l *layout) outputBytes(n int) int64 {
	rows := grownBytes(n*l.q) + 2*grownBytes(n*l.d) + 7*grownBytes(n)
	if l.hasWideVocabulary() {
		rows += grownBytes(min(n, wideRows) * l.v)
	}
	return rows
}

// backwardBytes is the memory of the backward pass's buffers, which the layers share.
func (l *layout) backwardBytes(n int) int64 {
	chunk := min(n, l.gradRows())
	if l.hasWideVocabulary() {
		chunk = 0 // the outputs' count
	}
	return 4*grownBytes(n*l.d) + 2*grownBytes(n*l.q) + grownBytes(2*n*l.ff) + grownBytes(n*l.qkv) + grownBytes(chunk*l.v)
}

// scratchBytes is the memory of the workers' own buffers.
func (b Backend) scratchBytes(l *layout, tokens int) int64 {
	rows, block := headRows, rowBlock
	if l.isLargeModel() && b.Options.DType != gpu.BFloat16 {
		block = viewedRows
	}
	if l.hasWideVocabulary() {
		rows = 0
	}
	worker := grownBytes((rows+1)*l.v) + grownBytes(block*2*l.ff) + grownBytes(block*l.ff) + grownBytes(block*l.d) + 2*grownBytes(queryBlock*tokens)
	return int64(b.workerCount()) * worker
}
