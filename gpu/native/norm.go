package native

import (
	"math"

	"github.com/weir-rl/weir/gpu/native/kernel"
)

// normalizeRows is RMSNorm (Zhang and Sennrich 2019) of rows as wide as the gain: y = gain * x * inv, inv =
// 1/sqrt(mean(x^2)+eps). The backward pass needs inv, a number for each row; it is nil when there is no backward pass. y may be
// x.
func (m *model) normalizeRows(y, x, gain, inv []float32) {
	d := len(gain)
	for i := 0; i*d < len(x); i++ {
		row, out := x[i*d:(i+1)*d], y[i*d:(i+1)*d]
		r := m.inverseNorm(row)
		if inv != nil {
			inv[i] = r
		}
		scaleByGain(out, row, gain, r)
	}
}

func (m *model) inverseNorm(row []float32) float32 {
	return float32(1 / math.Sqrt(kernel.SumSquares(row)/float64(len(row))+m.eps))
}

func scaleByGain(out, x, gain []float32, r float32) {
	kernel.Mul(out, x, gain)
	kernel.Scale(out, r)
}

// renormalizeRows repeats normalizeRows from the kept inverses.
func (m *model) renormalizeRows(y, x, gain, inv []float32) {
	d := len(gain)
	for i, r := range inv {
		scaleByGain(y[i*d:(i+1)*d], x[i*d:(i+1)*d], gain, r)
	}
}

// normalizeRowsGrad adds to dx the gradient of normalizeRows' input given dy, the gradient of its output, and adds the gain's
// gradient to dgain. With u = x inv and g = gain dy, dx = inv (g - u mean(g u)).
func (m *model) normalizeRowsGrad(s *scratch, dx, dgain, dy, x, gain, inv []float32) {
	d := len(gain)
	t := resizeBuffer(&s.row, d)
	for i, r := range inv {
		dyRow, xRow, dxRow := dy[i*d:(i+1)*d], x[i*d:(i+1)*d], dx[i*d:(i+1)*d]
		kernel.Mul(t, dyRow, xRow)
		kernel.Axpy(dgain, r, t)
		mean := kernel.Dot(t, gain) * r / float32(d)
		kernel.Mul(t, dyRow, gain)
		kernel.Axpy(dxRow, r, t)
		kernel.Axpy(dxRow, -mean*r*r, xRow)
	}
}
