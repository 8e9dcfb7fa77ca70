package native

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// Options are the native engine's own options.
type Options struct {
	// Seed of the starting weights; the same seed and configuration give the same weights.
	Seed uint64
	// Threads that share the work; 0 is GOMAXPROCS. Results do not depend on it.
	Threads int
	// Recompute has Accumulate keep a block's input alone, and compute the block again for its gradient: the same
	// bits, for a third more work and a fraction of the memory.
	Recompute bool
	// DType is the type in which the forward pass reads the matrices; "" is Float32. BFloat16 rounds them from the weights,
	// which stay float32.
	DType gpu.DType
	// Dot rounds the activations too where matrices are kept as BFloat16, in engines and decoders, on a processor that
	// multiplies pairs of bfloat16 numbers. It is faster, and another processor gives other bits.
	Dot bool
	// LoRA trains adapters instead of the weights.
	LoRA LoRA
	// Init sets how the starting weights are drawn.
	Init Init
}

// Engine is a gpu.Engine on the processor.
type Engine struct {
	*model
	pool *kernel.Pool

	// data holds the weights, flat in the layout's order; w names its parts.
	data []float32
	w    view
	// fast is the weights as Forward reads them, refreshed when stale.
	fast  *forwardWeights
	stale bool
	// forwardDType is Options.DType, dot Options.Dot.
	forwardDType gpu.DType
	dot          bool

	// lora are the adapters, nil without. trained and weights are the layout and data of the trained parameters: the adapters',
	// or the model's.
	lora    *adapters
	trained *layout
	weights []float32
	// initWeights makes the starting weights. It is nil once they are made, or other weights have taken their place.
	initWeights func()

	// grad is the gathered gradient, allocated on the first Backward; g names its parts.
	grad []float32
	g    view
	// moments are allocated on the first Step.
	moments moments

	plan        plan
	acts        activations
	gradScratch gradients
	rotary      rotary
	scratch     scratchPool
	out         gpu.Outputs
	// kept is true when acts holds Backward's inputs; recompute is Options.Recompute.
	kept, recompute bool
}

var _ gpu.Engine = (*Engine)(nil)

// New makes an engine with starting weights.
func New(cfg gpu.Config, opts Options) (*Engine, error) {
	if err := errors.Join(cfg.RequireOwn("native"), cfg.Validate()); err != nil {
		return nil, err
	}
	if err := opts.Init.validate(); err != nil {
		return nil, err
	}
	if opts.DType != "" && opts.DType.Bytes() == 0 {
		return nil, fmt.Errorf("forward pass in %q: want %s or %s", opts.DType, gpu.Float32, gpu.BFloat16)
	}
	if opts.LoRA.Rank != 0 {
		if err := opts.LoRA.Validate(); err != nil {
			return nil, fmt.Errorf("lora: %w", err)
		}
	}
	m := newModel(cfg)
	e := &Engine{
		model: m, pool: kernel.NewPool(opts.Threads), data: make([]float32, m.size), stale: true,
		rotary:    rotary{speeds: cfg.RopeSpeeds(), half: m.hd / 2},
		recompute: opts.Recompute, forwardDType: cmp.Or(opts.DType, gpu.Float32), dot: opts.Dot,
	}
	e.w = m.viewArray(e.data)
	e.initWeights = func() { m.drawWeights(e.data, opts.Seed, opts.Init) }
	e.trained, e.weights = &m.layout, e.data
	if opts.LoRA.Rank > 0 {
		e.lora = newAdapters(&m.layout, opts.LoRA)
		e.lora.seed = opts.Seed
		e.lora.drawMatrices()
		e.trained, e.weights, e.w.value = &e.lora.layout, e.lora.data, e.lora.value
	}
	return e, nil
}

// ensureWeights draws the starting weights unless something has replaced them. An import therefore need not wait for them.
func (e *Engine) ensureWeights() {
	if e.initWeights != nil {
		e.initWeights()
		e.initWeights = nil
	}
}

// Config describes the model.
func (e *Engine) Config() gpu.Config { return e.cfg }

// Close frees the buffers; the engine must not be used after it.
func (e *Engine) Close() error {
	*e = Engine{model: e.model}
	return nil
}

// model is shared by the engine and its decoders: the shape of the model and the rotary angles.
type model struct {
	layout
	// scale is 1/sqrt(hd); the rotated queries carry it.
	scale float32
	eps   float64
}

func newModel(cfg gpu.Config) *model {
	l := newLayout(cfg)
	return &model{layout: l, scale: float32(1 / math.Sqrt(float64(l.hd))), eps: cfg.RMSNormEps}
}

// checkTokens reports the first token outside the vocabulary.
func (m *model) checkTokens(tokens []int32) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= m.v {
			return fmt.Errorf("token %d at %d: outside the vocabulary of %d", t, i, m.v)
		}
	}
	return nil
}
