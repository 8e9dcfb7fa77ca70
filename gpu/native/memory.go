package native

import (
	"runtime"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

var _ gpu.MemoryEstimator = Backend{}

// slack is what fit adds to a buffer that has to grow: an eighth.
func slack(floats int) int64 { return 4 * int64(floats+floats/8) }

func (b Backend) workers() int {
	if b.Options.Threads > 0 {
		return b.Options.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// TrainingMemory counts what [Engine] allocates by the end of its first Step.
func (b Backend) TrainingMemory(cfg gpu.Config, tokens int) gpu.Memory {
	l := newLayout(cfg)
	size, trained := int64(l.size), int64(l.size)
	activations := l.activations(tokens, b.Options.Recompute) + l.backwards(tokens) + b.scratch(&l, tokens)
	out := gpu.Memory{{Name: "weights", Bytes: 4 * size}, {Name: "packed weights", Bytes: b.laidOut(&l)}}
	if rank := b.Options.LoRA.Rank; rank > 0 {
		trained = l.adapted(b.Options.LoRA)
		out = append(out, gpu.MemoryPart{Name: "adapters", Bytes: 4 * trained})
		activations += 2*slack(tokens*rank) + int64(b.workers())*slack(rowBlock*rank)
	}
	return append(out,
		gpu.MemoryPart{Name: "gradients", Bytes: 4 * trained},
		gpu.MemoryPart{Name: "moments", Bytes: 8 * trained},
		gpu.MemoryPart{Name: "activations", Bytes: activations})
}

// adapted is how many numbers adapters, and a value head beside them, have.
func (l *layout) adapted(o LoRA) int64 {
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

// EvaluatingMemory counts the same of an engine that keeps nothing for a backward pass.
func (b Backend) EvaluatingMemory(cfg gpu.Config, tokens int) gpu.Memory {
	l := newLayout(cfg)
	once := slack(tokens*l.d) + slack(tokens*l.qkv) + slack(tokens*l.q) + l.outputs(tokens)
	return gpu.Memory{
		{Name: "weights", Bytes: 4 * int64(l.size)},
		{Name: "packed weights", Bytes: b.laidOut(&l)},
		{Name: "activations", Bytes: once + b.scratch(&l, tokens)},
	}
}

// DecodingMemory counts what a decoder allocates, and the tensors that it keeps of the weights it is given: in float32 where
// o.DType leaves it open.
func (b Backend) DecodingMemory(cfg gpu.Config, o gpu.DecoderOptions, tokens int64, swapping bool) gpu.Memory {
	l := newLayout(cfg)
	weights := l.packed()
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

// laidOut is what an engine has of packed weights.
func (b Backend) laidOut(l *layout) int64 {
	switch {
	case b.Options.DType == gpu.BFloat16 && l.cfg.TieEmbeddings:
		return l.packed() / 2
	case b.Options.DType == gpu.BFloat16:
		return l.packed()/2 + 2*int64(l.v*l.d) // embeddings that are not the head
	case l.viewed():
		return 0
	}
	return l.packed()
}

// packed are the matrices as they are laid out for repeated products, with the head.
func (l *layout) packed() int64 {
	layer := l.d*l.qkv + l.q*l.d + l.d*2*l.ff + l.ff*l.d
	return 4 * (int64(l.layers)*int64(layer) + int64(l.d)*int64(l.v))
}

// activations are what forward keeps for backward of a part of n tokens, the head reading all of them.
func (l *layout) activations(n int, recompute bool) int64 {
	input := slack(n * l.d)
	layer := slack(n*l.d) + slack(n*l.qkv) + slack(n*l.q) + slack(2*n*l.heads) + 2*slack(n) + slack(2*n*l.ff) + slack(n*l.ff)
	if l.cfg.QKNorm {
		layer += slack(n*(l.q+l.kv)) + slack(n*(l.heads+l.kvHeads))
	}
	if recompute {
		return int64(l.layers)*input + layer + l.outputs(n)
	}
	return int64(l.layers)*(input+layer) + l.outputs(n)
}

// outputs are the last block's rows and what is given to the caller.
func (l *layout) outputs(n int) int64 {
	rows := slack(n*l.q) + 2*slack(n*l.d) + 7*slack(n)
	if l.wide() {
		rows += slack(min(n, wideRows) * l.v)
	}
	return rows
}

// backwards are the backward pass's buffers, which the layers share.
func (l *layout) backwards(n int) int64 {
	chunk := min(n, l.gradRows())
	if l.wide() {
		chunk = 0 // the outputs' count
	}
	return 4*slack(n*l.d) + 2*slack(n*l.q) + slack(2*n*l.ff) + slack(n*l.qkv) + slack(chunk*l.v)
}

// scratch is what the workers have for themselves.
func (b Backend) scratch(l *layout, tokens int) int64 {
	rows, block := headRows, rowBlock
	if l.viewed() && b.Options.DType != gpu.BFloat16 {
		block = viewedRows
	}
	if l.wide() {
		rows = 0
	}
	worker := slack((rows+1)*l.v) + slack(block*2*l.ff) + slack(block*l.ff) + slack(block*l.d) + 2*slack(queryBlock*tokens)
	return int64(b.workers()) * worker
}
