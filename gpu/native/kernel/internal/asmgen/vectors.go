package main

import "fmt"

// Registers of the elementwise functions: 0 to 9 free, 10 and 11 the bounds of exp, 12 a scalar, 13 the
// mask of AVX2, 14 and 15 free.

// elementwise writes a function over n elements: the body is written twice, for whole vectors and for the
// masked tail, so that an element is computed alike wherever it stands.
func (m *machine) elementwise(pointers []string, n string, at map[string]string, body func(masked bool)) {
	for i, p := range pointers {
		m.op("MOVQ", at[p], cursor(i))
	}
	m.op("MOVQ", at[n], "CX")
	loop, tail, done := m.label(), m.label(), m.label()
	m.mark(loop)
	m.op("CMPQ", "CX", fmt.Sprintf("$%d", m.lanes))
	m.op("JLT", tail)
	body(false)
	for i := range pointers {
		m.op("ADDQ", fmt.Sprintf("$%d", m.bytes()), cursor(i))
	}
	m.op("SUBQ", fmt.Sprintf("$%d", m.lanes), "CX")
	m.op("JMP", loop)
	m.mark(tail)
	m.op("TESTQ", "CX", "CX")
	m.op("JEQ", done)
	m.tailMask()
	body(true)
	m.mark(done)
}

func cursor(i int) string { return []string{"DI", "SI", "AX", "BX", "DX"}[i] }

func mem(i int) string { return "(" + cursor(i) + ")" }

// exp replaces x by e^x; n, p and t are scratch. NaN passes: MIN and MAX return their second source then.
func (m *machine) exp(x, n, p, t string) {
	m.op("VMINPS", x, m.v(10), x)
	m.op("VMAXPS", x, m.v(11), x)
	m.opc("VMULPS", "log2e", x, n)
	if m.wide() {
		m.op("VRNDSCALEPS", "$8", n, n)
	} else {
		m.op("VROUNDPS", "$8", n, n)
	}
	m.opc("VFNMADD231PS", "ln2hi", n, x)
	m.opc("VFNMADD231PS", "ln2lo", n, x)
	m.broadcast(m.constant("expC7"), p)
	for _, c := range []string{"expC6", "expC5", "expC4", "expC3", "expC2"} {
		m.opc("VFMADD213PS", c, x, p)
	}
	m.op("VMULPS", x, x, t)
	m.op("VFMADD213PS", x, t, p)
	m.opc("VADDPS", "one", p, p)
	if m.wide() {
		m.op("VSCALEFPS", n, p, x)
		return
	}
	// 2^n in two factors: the last product alone is rounded, and may be denormal or infinite.
	m.op("VCVTPS2DQ", n, n)
	m.op("VPSRAD", "$1", n, t)
	m.op("VPSUBD", t, n, n)
	m.opc("VPADDD", "bias", t, t)
	m.opc("VPADDD", "bias", n, n)
	m.op("VPSLLD", "$23", t, t)
	m.op("VPSLLD", "$23", n, n)
	m.op("VMULPS", t, p, p)
	m.op("VMULPS", n, p, x)
}

func (m *machine) expBounds() {
	m.broadcast(m.constant("expHi"), m.v(10))
	m.broadcast(m.constant("expLo"), m.v(11))
}

// sigmoid writes 1 / (1 + e^-x) to s; n, p and t are scratch.
func (m *machine) sigmoid(x, s, n, p, t string) {
	if m.wide() {
		m.opc("VPXORD", "sign", x, s)
	} else {
		m.opc("VXORPS", "sign", x, s)
	}
	m.exp(s, n, p, t)
	m.opc("VADDPS", "one", s, s)
	m.broadcast(m.constant("one"), n)
	m.op("VDIVPS", s, n, s)
}

// siluSlope writes the derivative of silu at x to d, given s = sigmoid(x): s (1 + x (1 - s)).
func (m *machine) siluSlope(x, s, d string) {
	m.broadcast(m.constant("one"), d)
	m.op("VSUBPS", s, d, d)
	m.opc("VFMADD213PS", "one", x, d)
	m.op("VMULPS", s, d, d)
}

func (m *machine) vectors() {
	m.reductions()
	v := m.v

	at := m.text("axpy", 0, arg{"y", 8}, arg{"x", 8}, arg{"n", 8}, arg{"alpha", 4})
	m.broadcast(at["alpha"], v(12))
	m.elementwise([]string{"y", "x"}, "n", at, func(masked bool) {
		m.load(mem(0), v(0), masked)
		m.load(mem(1), v(1), masked)
		m.op("VFMADD231PS", v(1), v(12), v(0))
		m.store(v(0), mem(0), masked)
	})
	m.ret()

	at = m.text("scale", 0, arg{"x", 8}, arg{"n", 8}, arg{"alpha", 4})
	m.broadcast(at["alpha"], v(12))
	m.elementwise([]string{"x"}, "n", at, func(masked bool) {
		m.load(mem(0), v(0), masked)
		m.op("VMULPS", v(12), v(0), v(0))
		m.store(v(0), mem(0), masked)
	})
	m.ret()

	for _, f := range []struct{ name, op string }{{"add", "VADDPS"}, {"mul", "VMULPS"}} {
		at = m.text(f.name, 0, ptrs("dst", "a", "b", "n")...)
		m.elementwise([]string{"dst", "a", "b"}, "n", at, func(masked bool) {
			m.load(mem(1), v(0), masked)
			m.load(mem(2), v(1), masked)
			m.op(f.op, v(1), v(0), v(0))
			m.store(v(0), mem(0), masked)
		})
		m.ret()
	}

	at = m.text("exp", 0, ptrs("dst", "src", "n")...)
	m.expBounds()
	m.elementwise([]string{"dst", "src"}, "n", at, func(masked bool) {
		m.load(mem(1), v(0), masked)
		m.exp(v(0), v(1), v(2), v(3))
		m.store(v(0), mem(0), masked)
	})
	m.ret()

	at = m.text("expSum", 4, arg{"dst", 8}, arg{"src", 8}, arg{"n", 8}, arg{"shift", 4})
	m.expBounds()
	m.broadcast(at["shift"], v(12))
	m.zero(v(9))
	m.elementwise([]string{"dst", "src"}, "n", at, func(masked bool) {
		m.load(mem(1), v(0), masked)
		m.op("VSUBPS", v(12), v(0), v(0))
		m.exp(v(0), v(1), v(2), v(3))
		m.store(v(0), mem(0), masked)
		m.accumulate("VADDPS", v(0), v(9), masked)
	})
	m.fold("VADD", 9)
	m.op("VMOVSS", "X9", at["ret"])
	m.ret()

	at = m.text("swiglu", 0, ptrs("dst", "gate", "up", "n")...)
	m.expBounds()
	m.elementwise([]string{"dst", "gate", "up"}, "n", at, func(masked bool) {
		m.load(mem(1), v(0), masked)
		m.sigmoid(v(0), v(4), v(1), v(2), v(3))
		m.load(mem(2), v(5), masked)
		m.op("VMULPS", v(4), v(0), v(0))
		m.op("VMULPS", v(5), v(0), v(0))
		m.store(v(0), mem(0), masked)
	})
	m.ret()

	at = m.text("swigluGrad", 0, ptrs("dgate", "dup", "gate", "up", "dout", "n")...)
	m.expBounds()
	m.elementwise([]string{"dgate", "dup", "gate", "up", "dout"}, "n", at, func(masked bool) {
		m.load(mem(2), v(0), masked)
		m.sigmoid(v(0), v(4), v(1), v(2), v(3))
		m.siluSlope(v(0), v(4), v(5))
		m.load(mem(3), v(6), masked)
		m.load(mem(4), v(7), masked)
		m.op("VMULPS", v(6), v(7), v(6))
		m.op("VMULPS", v(5), v(6), v(6))
		m.op("VMULPS", v(4), v(0), v(0))
		m.op("VMULPS", v(7), v(0), v(0))
		m.store(v(6), mem(0), masked)
		m.store(v(0), mem(1), masked)
	})
	m.ret()

	m.adamw()
}

// adamw reads kernel.adamwScalars by offset.
func (m *machine) adamw() {
	v := m.v
	at := m.text("adamw", 0, ptrs("w", "m", "v", "grad", "n", "s")...)
	m.op("MOVQ", at["s"], "R8")
	scalar := func(i int, dst string) { m.broadcast(fmt.Sprintf("%d(R8)", 4*i), dst) }
	// The registers 5 to 12 and 14 hold gradScale, beta1, 1-beta1, beta2, 1-beta2, rootCorr2, eps, keep, step.
	regs := []int{5, 6, 7, 8, 9, 10, 11, 12, 14}
	for i, r := range regs {
		scalar(i, v(r))
	}
	m.elementwise([]string{"w", "m", "v", "grad"}, "n", at, func(masked bool) {
		m.load(mem(3), v(0), masked)
		m.op("VMULPS", v(5), v(0), v(0)) // x = g * gradScale
		m.load(mem(1), v(1), masked)
		m.op("VMULPS", v(6), v(1), v(1))
		m.op("VFMADD231PS", v(7), v(0), v(1)) // m
		m.store(v(1), mem(1), masked)
		m.op("VMULPS", v(0), v(0), v(0))
		m.load(mem(2), v(2), masked)
		m.op("VMULPS", v(8), v(2), v(2))
		m.op("VFMADD231PS", v(9), v(0), v(2)) // v
		m.store(v(2), mem(2), masked)
		m.op("VSQRTPS", v(2), v(2))
		m.op("VFMADD213PS", v(11), v(10), v(2)) // sqrt(v) * rootCorr2 + eps
		m.op("VMULPS", v(14), v(1), v(1))
		m.op("VDIVPS", v(2), v(1), v(1)) // step * m / that
		m.load(mem(0), v(0), masked)
		m.op("VFMSUB132PS", v(12), v(1), v(0)) // w * keep - that
		m.store(v(0), mem(0), masked)
	})
	m.ret()
}
