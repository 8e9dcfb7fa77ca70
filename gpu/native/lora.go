package native

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/adapter"
	"github.com/weir-rl/weir/gpu/native/kernel"
	"github.com/weir-rl/weir/internal/check"
)

// LoRA has the engine train low-rank adapters beside frozen weights (Hu et al. 2021): a target matrix W acts as
// W + alpha/rank B A, with A [rank, in] and B [out, rank], and A, B and a value head are all that is trained.
type LoRA struct {
	// Rank is the adapters' rank. 0 trains the weights themselves. Defaults to 0.
	Rank int `koanf:"rank"`
	// Alpha scales the adapters, by alpha/rank. Defaults to 32.
	Alpha float64 `koanf:"alpha"`
	// Targets are the matrices of each block that have adapters: some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj
	// and down_proj. Defaults to all.
	Targets []string `koanf:"targets"`
}

// loraTargets are the matrices that can have adapters, in the layout's order.
var loraTargets = [...]string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// DefaultLoRA is off.
func DefaultLoRA() LoRA { return LoRA{Alpha: 32, Targets: slices.Clone(loraTargets[:])} }

// Validate reports every fault.
func (o LoRA) Validate() error {
	faults := []error{check.NotNegative("rank", o.Rank), check.Positive("alpha", o.Alpha)}
	if o.Rank > 0 {
		faults = append(faults, check.That(len(o.Targets) > 0, "targets", "none: name some of %s", strings.Join(loraTargets[:], ", ")))
	}
	for i, t := range o.Targets {
		if !slices.Contains(loraTargets[:], t) {
			faults = append(faults, check.That(false, "targets", "%q: want some of %s", t, strings.Join(loraTargets[:], ", ")))
		}
		if slices.Contains(o.Targets[:i], t) {
			faults = append(faults, check.That(false, "targets", "%q is named twice", t))
		}
	}
	return check.All(faults...)
}

// Unread explains why nothing depends on a key of the section, beginning with the other key that says so; "" if something does.
func (o LoRA) Unread(key string) string {
	if key != "rank" && o.Rank == 0 {
		return "rank is 0"
	}
	return ""
}

// adapters are the trained tensors of an engine with LoRA: its layout names them as PEFT does, and a value head last.
type adapters struct {
	layout
	options LoRA
	scale   float32
	// seed draws the A matrices.
	seed   uint64
	data   []float32
	layers []loraLayer
	value  []float32
	// grads are the gradients of layers, nil before the first Backward.
	grads []loraLayer
	// base is the hash of the frozen weights, "" until it is needed. folded is true when the weights are of a folder whose
	// adapters, trained on other weights, were added to them.
	base   string
	folded bool
}

// loraLayer is a block's adapters, or their gradients.
type loraLayer struct {
	rank                       int
	scale                      float32
	q, k, v, o, gate, up, down lora
}

// lora is an adapter, or its gradient. It is the zero value where a matrix has none.
type lora struct{ a, b []float32 }

// newAdapters returns adapters whose numbers are all 0.
func newAdapters(l *layout, o LoRA) *adapters {
	ad := placeAdapters(l, o)
	ad.data = make([]float32, ad.size)
	ad.layers, ad.value = ad.viewLayers(ad.data)
	return ad
}

// placeAdapters returns adapters without numbers: their layout alone.
func placeAdapters(l *layout, o LoRA) *adapters {
	ad := &adapters{options: o, scale: float32(o.Alpha / float64(o.Rank)), layout: *l}
	ad.tensors, ad.size = nil, 0
	add := func(name string, shape ...int) {
		t := spec{name: name, shape: shape, off: ad.size, n: shape[0] * shape[1]}
		ad.tensors, ad.size = append(ad.tensors, t), ad.size+t.n
	}
	for _, t := range l.tensors {
		module, ok := strings.CutSuffix(t.name, ".weight")
		if at := strings.LastIndexByte(module, '.'); ok && slices.Contains(o.Targets, module[at+1:]) {
			add(adapter.Prefix+module+adapter.SuffixA, o.Rank, t.shape[1])
			add(adapter.Prefix+module+adapter.SuffixB, t.shape[0], o.Rank)
		}
	}
	if l.cfg.ValueHead {
		add(gpu.ValueHeadTensor, 1, l.d)
	}
	return ad
}

// viewLayers names the parts of a flat array: adapters or their gradient.
func (ad *adapters) viewLayers(data []float32) (layers []loraLayer, value []float32) {
	layers = make([]loraLayer, ad.cfg.NumLayers)
	parts := ad.splitArray(data)
	if ad.cfg.ValueHead {
		value, parts = parts[len(parts)-1], parts[:len(parts)-1]
	}
	for i := range layers {
		l := &layers[i]
		l.rank, l.scale = ad.options.Rank, ad.scale
		for j, to := range []*lora{&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down} {
			if slices.Contains(ad.options.Targets, loraTargets[j]) {
				to.a, to.b, parts = parts[0], parts[1], parts[2:]
			}
		}
	}
	return layers, value
}

// layerAdapters returns a block's adapters and their gradients. All are zero values where ad is nil, in an engine that trains
// the weights.
func (ad *adapters) layerAdapters(l int) (weights, gradients *loraLayer) {
	if ad == nil {
		return new(loraLayer), new(loraLayer)
	}
	return &ad.layers[l], &ad.grads[l]
}

// drawMatrices makes A uniform within 1/sqrt(in), as PEFT does, and B 0, so that nothing is added; a value head is left alone.
func (ad *adapters) drawMatrices() {
	for i, t := range ad.tensors {
		out := ad.data[t.off : t.off+t.n]
		switch {
		case strings.HasSuffix(t.name, adapter.SuffixA):
			bound := 1 / math.Sqrt(float64(t.shape[1]))
			r := rand.New(rand.NewPCG(ad.seed, uint64(i)+1<<32))
			for j := range out {
				out[j] = float32((2*r.Float64() - 1) * bound)
			}
		case strings.HasSuffix(t.name, adapter.SuffixB):
			clear(out)
		}
	}
}

// redrawMatrices draws the adapters anew, since the frozen weights are others.
func (ad *adapters) redrawMatrices() {
	ad.base = ""
	ad.drawMatrices()
}

// findAdapter is the adapter of a matrix of the model; the zero value where it has none.
func (ad *adapters) findAdapter(name string) (p lora) {
	for i, t := range ad.tensors {
		if t.name == adapter.Prefix+strings.TrimSuffix(name, ".weight")+adapter.SuffixA {
			b := ad.tensors[i+1]
			return lora{a: ad.data[t.off : t.off+t.n], b: ad.data[b.off : b.off+b.n]}
		}
	}
	return lora{}
}

// mergeTensor returns a tensor's numbers with its adapter added, in room or a longer array. If ad is nil it is a copy.
func (ad *adapters) mergeTensor(pool *kernel.Pool, t gpu.Tensor, room []float32) []float32 {
	room = append(room[:0], t.Data...)
	if ad == nil {
		return room
	}
	if p := ad.findAdapter(t.Name); p.a != nil {
		b := slices.Clone(p.b)
		kernel.Scale(b, ad.scale)
		pool.MatMul(room, b, p.a, t.Shape[0], ad.options.Rank, t.Shape[1], true)
	}
	return room
}

// addProduct adds an adapter's part of a product to y [rows, out], from its input x [rows, in].
func (l *loraLayer) addProduct(s *scratch, p lora, y kernel.Matrix, x []float32, rows int) {
	if p.a == nil {
		return
	}
	in, out := len(p.a)/l.rank, len(p.b)/l.rank
	t := resizeBuffer(&s.lora, rows*l.rank)
	kernel.MatMulNT(t, x, p.a, rows, in, l.rank, false)
	kernel.Scale(t, l.scale)
	kernel.MatMulNTStrided(y, kernel.Matrix{Data: t, Stride: l.rank}, kernel.Matrix{Data: p.b, Stride: l.rank}, rows, l.rank, out, true)
}

// addInputGrad adds to dx [rows, in], the gradient of the input, an adapter's part of it, given dy [rows, out], the gradient of the
// output.
func (l *loraLayer) addInputGrad(s *scratch, p lora, dx []float32, dy kernel.Matrix, rows int) {
	if p.a == nil {
		return
	}
	in, out := len(p.a)/l.rank, len(p.b)/l.rank
	t := resizeBuffer(&s.lora, rows*l.rank)
	kernel.MatMulStrided(kernel.Matrix{Data: t, Stride: l.rank}, dy, kernel.Matrix{Data: p.b, Stride: l.rank}, rows, out, l.rank, false)
	kernel.Scale(t, l.scale)
	kernel.MatMul(dx, t, p.a, rows, l.rank, in, true)
}

// addLoRAGrad adds the gradients of an adapter p to g, given its inputs x [n, in] and dy [n, out], the gradient of its outputs.
func (e *Engine) addLoRAGrad(p, g lora, x []float32, dy kernel.Matrix, n int) {
	if p.a == nil {
		return
	}
	r := e.lora.options.Rank
	in, out := len(p.a)/r, len(p.b)/r
	t, dt := resizeBuffer(&e.gradScratch.loraIn, n*r), resizeBuffer(&e.gradScratch.loraOut, n*r)
	b := kernel.Matrix{Data: p.b, Stride: r}
	e.forEachBlock(n, rowBlock, func(_ *scratch, lo, hi int) {
		kernel.MatMulNT(t[lo*r:hi*r], x[lo*in:hi*in], p.a, hi-lo, in, r, false)
		kernel.MatMulStrided(kernel.Matrix{Data: dt[lo*r:], Stride: r}, dy.From(lo), b, hi-lo, out, r, false)
	})
	kernel.Scale(t, e.lora.scale)
	kernel.Scale(dt, e.lora.scale)
	e.pool.MatMulTNStrided(kernel.Matrix{Data: g.b, Stride: r}, dy, kernel.Matrix{Data: t, Stride: r}, out, n, r, true)
	e.pool.MatMulTN(g.a, dt, x, r, n, in, true)
}

// frozenGradient is the view of a gradient that is not kept: no matrices, and vectors whose sums are discarded.
func (l *layout) frozenGradient(value []float32) view {
	v := view{norm: make([]float32, l.d), value: value, layers: make([]layerView, l.layers)}
	one := layerView{attnNorm: v.norm, mlpNorm: v.norm}
	if l.cfg.QKVBias {
		one.bias = make([]float32, l.qkv)
	}
	if l.cfg.QKNorm {
		one.qNorm, one.kNorm = make([]float32, l.hd), make([]float32, l.hd)
	}
	for i := range v.layers {
		v.layers[i] = one
	}
	return v
}
