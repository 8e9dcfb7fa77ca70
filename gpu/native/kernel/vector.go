package kernel

import (
	"fmt"
	"math"
)

// Dot is the inner product of two vectors of the same length.
func Dot(a, b []float32) float32 {
	checkLen("Dot", "b", len(b), len(a))
	return best.dotProduct(a, b)
}

// Axpy adds alpha x to y, elementwise.
func Axpy(y []float32, alpha float32, x []float32) {
	checkLen("Axpy", "x", len(x), len(y))
	best.axpy(y, alpha, x)
}

// Scale multiplies x by alpha in place.
func Scale(x []float32, alpha float32) { best.scaleElements(x, alpha) }

// Add writes a + b to dst. dst may be a or b.
func Add(dst, a, b []float32) {
	checkLen("Add", "a", len(a), len(dst))
	checkLen("Add", "b", len(b), len(dst))
	best.addElements(dst, a, b)
}

// Mul writes the elementwise product a b to dst. dst may be a or b.
func Mul(dst, a, b []float32) {
	checkLen("Mul", "a", len(a), len(dst))
	checkLen("Mul", "b", len(b), len(dst))
	best.mulElements(dst, a, b)
}

// Sum of the elements, 0 for none.
func Sum(x []float32) float32 { return best.sumElements(x) }

// SumSquares is the sum of the squares, in float64.
func SumSquares(x []float32) float64 { return best.sumSquares(x) }

// Max is the largest element, -Inf for none, NaN when any is NaN.
func Max(x []float32) float32 { return best.maxElement(x) }

// Exp writes e^src to dst, within 2 units in the last place, denormal results included. dst may be src.
func Exp(dst, src []float32) {
	checkLen("Exp", "dst", len(dst), len(src))
	best.expElements(dst, src)
}

// ExpSum writes e^(src-shift) to dst and returns the sum: the core of a softmax. dst may be src.
func ExpSum(dst, src []float32, shift float32) float32 {
	checkLen("ExpSum", "dst", len(dst), len(src))
	return best.expSum(dst, src, shift)
}

// SwiGLU is silu(gate) * up (Shazeer 2020). dst may be gate or up.
func SwiGLU(dst, gate, up []float32) {
	checkLen("SwiGLU", "gate", len(gate), len(dst))
	checkLen("SwiGLU", "up", len(up), len(dst))
	best.swigluElements(dst, gate, up)
}

// SwiGLUGrad writes the gradients of SwiGLU's inputs, given the gradient of its output. dgate may be gate, dup up.
func SwiGLUGrad(dgate, dup, gate, up, dout []float32) {
	checkLen("SwiGLUGrad", "dup", len(dup), len(dgate))
	checkLen("SwiGLUGrad", "gate", len(gate), len(dgate))
	checkLen("SwiGLUGrad", "up", len(up), len(dgate))
	checkLen("SwiGLUGrad", "dout", len(dout), len(dgate))
	best.swigluGrad(dgate, dup, gate, up, dout)
}

// AdamWStep holds a step's parameters of AdamW.
type AdamWStep struct {
	LearningRate, Beta1, Beta2, Epsilon float32
	// Decay is the decoupled weight decay; 0 is none.
	Decay float32
	// GradScale multiplies the gradient first: 1 leaves it alone, 0 makes it 0.
	GradScale float32
	// Correction1 and Correction2 are the bias corrections 1-beta1^t and 1-beta2^t of step t, counted from 1.
	Correction1, Correction2 float32
}

// AdamW takes a step of Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) on the weights w with
// moments m and v and gradient g:
//
//	m = beta1 m + (1-beta1) g,  v = beta2 v + (1-beta2) g^2
//	w = w - lr (m/correction1 / (sqrt(v/correction2) + epsilon) + decay w)
func AdamW(w, m, v, g []float32, s AdamWStep) {
	checkLen("AdamW", "m", len(m), len(w))
	checkLen("AdamW", "v", len(v), len(w))
	checkLen("AdamW", "g", len(g), len(w))
	best.adamwElements(w, m, v, g, s.assemblyScalars())
}

func (s AdamWStep) assemblyScalars() adamwScalars {
	return adamwScalars{
		gradScale: s.GradScale, beta1: s.Beta1, oneMinus1: 1 - s.Beta1, beta2: s.Beta2, oneMinus2: 1 - s.Beta2,
		rootCorr2: float32(1 / math.Sqrt(float64(s.Correction2))), eps: s.Epsilon, keep: 1 - s.LearningRate*s.Decay,
		step: s.LearningRate / s.Correction1,
	}
}

// adamwScalars are the numbers that AdamW's assembly reads, by offset.
type adamwScalars struct {
	gradScale, beta1, oneMinus1, beta2, oneMinus2, rootCorr2, eps, keep, step float32
}

func checkLen(op, name string, got, want int) {
	if got != want {
		panic(fmt.Sprintf("kernel.%s: %s has %d elements, want %d", op, name, got, want))
	}
}
