package kernel

import "math"

// The conversions float32(x*y) below forbid fusing, so that every element is rounded alike on every
// processor that runs the portable kernels.

// gemmPortable computes the rows [lo, hi) of C. Several steps along k, or several columns, are taken together
// for speed; the additions of each element keep their order.
func gemmPortable(p *product, lo, hi int) {
	for i := lo; i < hi; i++ {
		row := p.c[i*p.ldc : i*p.ldc+p.n]
		if !p.acc {
			clear(row)
		}
		switch {
		case p.half != nil:
			p.addHalfDots(row, p.a[i*p.ars:i*p.ars+p.k])
		case p.bcs == 1:
			p.addRows(row, i)
		default:
			p.addDots(row, p.a[i*p.ars:i*p.ars+p.k])
		}
	}
}

// addRows adds multiples of B's rows to row i of C.
func (p *product) addRows(row []float32, i int) {
	b := func(q int) []float32 { return p.b[q*p.brs:][:len(row)] }
	at := i * p.ars
	q := 0
	for ; q+4 <= p.k; q += 4 {
		x0, x1, x2, x3 := p.a[at], p.a[at+p.acs], p.a[at+2*p.acs], p.a[at+3*p.acs]
		y0, y1, y2, y3 := b(q), b(q+1), b(q+2), b(q+3)
		for j := range row {
			row[j] = row[j] + float32(x0*y0[j]) + float32(x1*y1[j]) + float32(x2*y2[j]) + float32(x3*y3[j])
		}
		at += 4 * p.acs
	}
	for ; q < p.k; q++ {
		x, y := p.a[at], b(q)
		for j := range row {
			row[j] += float32(x * y[j])
		}
		at += p.acs
	}
}

// addDots adds to row the products of the vector a with the columns of B, which lie along its rows.
func (p *product) addDots(row, a []float32) {
	b := func(j int) []float32 { return p.b[j*p.bcs:][:len(a)] }
	j := 0
	for ; j+4 <= len(row); j += 4 {
		s0, s1, s2, s3 := row[j], row[j+1], row[j+2], row[j+3]
		y0, y1, y2, y3 := b(j), b(j+1), b(j+2), b(j+3)
		for q, x := range a {
			s0 += float32(x * y0[q])
			s1 += float32(x * y1[q])
			s2 += float32(x * y2[q])
			s3 += float32(x * y3[q])
		}
		row[j], row[j+1], row[j+2], row[j+3] = s0, s1, s2, s3
	}
	for ; j < len(row); j++ {
		s := row[j]
		for q, y := range b(j) {
			s += float32(a[q] * y)
		}
		row[j] = s
	}
}

func dotPortable(a, b []float32) float32 {
	var s [4]float32
	b = b[:len(a)]
	for i := range a {
		s[i&3] += float32(a[i] * b[i])
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

func axpyPortable(y []float32, alpha float32, x []float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += float32(alpha * x[i])
	}
}

func scalePortable(x []float32, alpha float32) {
	for i := range x {
		x[i] *= alpha
	}
}

func addPortable(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func mulPortable(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func sumPortable(x []float32) float32 {
	var s [4]float32
	for i, v := range x {
		s[i&3] += v
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

func sumSquaresPortable(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(float64(v) * float64(v))
	}
	return s
}

func maxPortable(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// expOne works in float64, where the range of float32's exp needs no care: the final conversion rounds to
// infinity, to a denormal or to zero as it should.
func expOne(x float32) float32 {
	const (
		log2e = 1.4426950408889634
		ln2   = 0.6931471805599453
	)
	switch {
	case x != x:
		return x
	case x > 89:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	}
	n := math.Floor(float64(float64(x)*log2e) + 0.5)
	r := float64(x) - float64(n*ln2)
	q := 1.0 / 5040
	q = 1.0/720 + float64(q*r)
	q = 1.0/120 + float64(q*r)
	q = 1.0/24 + float64(q*r)
	q = 1.0/6 + float64(q*r)
	q = 0.5 + float64(q*r)
	q = 1 + float64(q*r)
	q = 1 + float64(q*r)
	return float32(q * math.Float64frombits(uint64(int64(n)+1023)<<52))
}

func expPortable(dst, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = expOne(v)
	}
}

func expSumPortable(dst, src []float32, shift float32) float32 {
	dst = dst[:len(src)]
	var s float32
	for i, v := range src {
		e := expOne(v - shift)
		dst[i] = e
		s += e
	}
	return s
}

func sigmoidOne(x float32) float32 { return 1 / (1 + expOne(-x)) }

func swigluPortable(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i, v := range gate {
		dst[i] = float32(v*sigmoidOne(v)) * up[i]
	}
}

func swigluGradPortable(dgate, dup, gate, up, dout []float32) {
	n := len(dgate)
	dup, gate, up, dout = dup[:n], gate[:n], up[:n], dout[:n]
	for i, v := range gate {
		s := sigmoidOne(v)
		d, u := dout[i], up[i]
		dup[i] = d * float32(v*s)
		dgate[i] = float32(d*u) * float32(s*float32(1+float32(v*float32(1-s))))
	}
}

func adamwPortable(w, m, v, g []float32, s adamwScalars) {
	m, v, g = m[:len(w)], v[:len(w)], g[:len(w)]
	for i := range w {
		x := g[i] * s.gradScale
		mi := float32(s.beta1*m[i]) + float32(s.oneMinus1*x)
		vi := float32(s.beta2*v[i]) + float32(s.oneMinus2*float32(x*x))
		m[i], v[i] = mi, vi
		den := float32(math.Sqrt(float64(vi)))*s.rootCorr2 + s.eps
		w[i] = float32(w[i]*s.keep) - float32(s.step*mi)/den
	}
}
