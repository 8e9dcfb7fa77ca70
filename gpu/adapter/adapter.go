package adapter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native/kernel"
)

// Adapter is low-rank matrices for some matrices of a model. Its methods may be called by several goroutines.
type Adapter struct {
	rank int
	low  map[string]low
}

// low is a matrix's adapter: B [out, rank] already scaled, and A [rank, in].
type low struct {
	a, b    []float32
	out, in int
}

// Names of tensors, as PEFT makes them: prefix, the matrix's module, and which of the two it is.
const (
	Prefix  = "base_model.model."
	SuffixA = ".lora_A.weight"
	SuffixB = ".lora_B.weight"
)

// New makes an adapter of PEFT's tensors. Every fault is reported, wrapping gpu.ErrMismatch.
func New(tensors []gpu.Tensor, rank int, alpha float64) (*Adapter, error) {
	if rank < 1 || !(alpha > 0) {
		return nil, fmt.Errorf("%w: an adapter of rank %d and alpha %g", gpu.ErrMismatch, rank, alpha)
	}
	ad := &Adapter{rank: rank, low: map[string]low{}}
	scale := float32(alpha / float64(rank))
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{gpu.ErrMismatch}, args...)...))
	}
	seen := map[string]bool{}
	for _, t := range tensors {
		if seen[t.Name] {
			bad("%s is given twice", t.Name)
		}
		seen[t.Name] = true
		module, isA := strings.CutSuffix(t.Name, SuffixA)
		isB := false
		if !isA {
			module, isB = strings.CutSuffix(t.Name, SuffixB)
		}
		module, ours := strings.CutPrefix(module, Prefix)
		if !ours || !isA && !isB {
			bad("%s is not a tensor of an adapter", t.Name)
			continue
		}
		if len(t.Shape) != 2 || len(t.Data) != t.Elements() {
			bad("%s has shape %v and %d numbers", t.Name, t.Shape, len(t.Data))
			continue
		}
		name := module + ".weight"
		p, of := ad.low[name], 0
		if isA {
			p.a, of, p.in = t.Data, t.Shape[0], t.Shape[1]
		} else {
			p.b, p.out, of = slices.Clone(t.Data), t.Shape[0], t.Shape[1]
			kernel.Scale(p.b, scale)
		}
		if of != rank {
			bad("%s has shape %v: the adapter's rank is %d", t.Name, t.Shape, rank)
		}
		ad.low[name] = p
	}
	for name, p := range ad.low {
		if p.a == nil || p.b == nil {
			bad("%s has one half of an adapter", name)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return ad, nil
}

// Fits reports every matrix of the adapter that the tensors, a model's, lack or have in another shape, wrapping gpu.ErrMismatch.
func (ad *Adapter) Fits(tensors []gpu.Tensor) error {
	var errs []error
	shapes := map[string][]int{}
	for _, t := range tensors {
		shapes[t.Name] = t.Shape
	}
	for name, p := range ad.low {
		switch shape, ok := shapes[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("%w: the adapter is of %s, which the model lacks", gpu.ErrMismatch, name))
		case !slices.Equal(shape, []int{p.out, p.in}):
			errs = append(errs, fmt.Errorf("%w: the adapter's %s is [%d %d], the model's %v", gpu.ErrMismatch, name, p.out, p.in, shape))
		}
	}
	return errors.Join(errs...)
}

// addPart adds the adapter's part of a matrix's numbers from the at-th on. Each number is a single accumulator that takes the
// products in order, wherever it stands, so that pieces and threads change no bit.
func (ad *Adapter) addPart(name string, at int, data []float32) {
	p, ok := ad.low[name]
	if !ok {
		return
	}
	for len(data) > 0 {
		row, col := at/p.in, at%p.in
		rows, n := 1, min(p.in-col, len(data))
		if whole := len(data) / p.in; col == 0 && whole > 0 {
			rows, n = whole, p.in
		}
		kernel.MatMulStrided(kernel.Matrix{Data: data, Stride: n}, kernel.Matrix{Data: p.b[row*ad.rank:], Stride: ad.rank},
			kernel.Matrix{Data: p.a[col:], Stride: p.in}, rows, ad.rank, n, true)
		data, at = data[rows*n:], at+rows*n
	}
}
