package main

import "fmt"

// Registers of the elementwise functions: 0 to 9 free, 10 and 11 the bounds of exp, 12 a scalar, 13 the
// mask of AVX2, 14 and 15 free.

// writeElementwise writes a function over n elements: the body is written twice, for whole vectors and for the
// masked tail, so that an element is computed alike wherever it stands.
func (m *machine) writeElementwise(pointers []string, n string, at map[string]string, body func(masked bool)) {
	for i, p := range pointers {
		m.writeOp("MOVQ", at[p], cursorRegister(i))
	}
	m.writeOp("MOVQ", at[n], "CX")
	loop, tail, done := m.newLabel(), m.newLabel(), m.newLabel()
	m.placeLabel(loop)
	m.writeOp("CMPQ", "CX", fmt.Sprintf("$%d", m.lanes))
	m.writeOp("JLT", tail)
	body(false)
	for i := range pointers {
		m.writeOp("ADDQ", fmt.Sprintf("$%d", m.vectorBytes()), cursorRegister(i))
	}
	m.writeOp("SUBQ", fmt.Sprintf("$%d", m.lanes), "CX")
	m.writeOp("JMP", loop)
	m.placeLabel(tail)
	m.writeOp("TESTQ", "CX", "CX")
	m.writeOp("JEQ", done)
	m.tailMask()
	body(true)
	m.placeLabel(done)
}

func cursorRegister(i int) string { return []string{"DI", "SI", "AX", "BX", "DX"}[i] }

func cursorOperand(i int) string { return "(" + cursorRegister(i) + ")" }

// writeExp replaces x by e^x; n, p and t are scratch. NaN passes: MIN and MAX return their second source then.
func (m *machine) writeExp(x, n, p, t string) {
	m.writeOp("VMINPS", x, m.vectorRegister(10), x)
	m.writeOp("VMAXPS", x, m.vectorRegister(11), x)
	m.writeConstOp("VMULPS", "log2e", x, n)
	if m.hasMaskRegisters() {
		m.writeOp("VRNDSCALEPS", "$8", n, n)
	} else {
		m.writeOp("VROUNDPS", "$8", n, n)
	}
	m.writeConstOp("VFNMADD231PS", "ln2hi", n, x)
	m.writeConstOp("VFNMADD231PS", "ln2lo", n, x)
	m.broadcastScalar(m.constantName("expC7"), p)
	for _, c := range []string{"expC6", "expC5", "expC4", "expC3", "expC2"} {
		m.writeConstOp("VFMADD213PS", c, x, p)
	}
	m.writeOp("VMULPS", x, x, t)
	m.writeOp("VFMADD213PS", x, t, p)
	m.writeConstOp("VADDPS", "one", p, p)
	if m.hasMaskRegisters() {
		m.writeOp("VSCALEFPS", n, p, x)
		return
	}
	// 2^n in two factors: the last product alone is rounded, and may be denormal or infinite.
	m.writeOp("VCVTPS2DQ", n, n)
	m.writeOp("VPSRAD", "$1", n, t)
	m.writeOp("VPSUBD", t, n, n)
	m.writeConstOp("VPADDD", "bias", t, t)
	m.writeConstOp("VPADDD", "bias", n, n)
	m.writeOp("VPSLLD", "$23", t, t)
	m.writeOp("VPSLLD", "$23", n, n)
	m.writeOp("VMULPS", t, p, p)
	m.writeOp("VMULPS", n, p, x)
}

func (m *machine) expBounds() {
	m.broadcastScalar(m.constantName("expHi"), m.vectorRegister(10))
	m.broadcastScalar(m.constantName("expLo"), m.vectorRegister(11))
}

// writeSigmoid writes 1 / (1 + e^-x) to s; n, p and t are scratch.
func (m *machine) writeSigmoid(x, s, n, p, t string) {
	if m.hasMaskRegisters() {
		m.writeConstOp("VPXORD", "sign", x, s)
	} else {
		m.writeConstOp("VXORPS", "sign", x, s)
	}
	m.writeExp(s, n, p, t)
	m.writeConstOp("VADDPS", "one", s, s)
	m.broadcastScalar(m.constantName("one"), n)
	m.writeOp("VDIVPS", s, n, s)
}

// siluSlope writes the derivative of silu at x to d, given s = sigmoid(x): s (1 + x (1 - s)).
func (m *machine) siluSlope(x, s, d string) {
	m.broadcastScalar(m.constantName("one"), d)
	m.writeOp("VSUBPS", s, d, d)
	m.writeConstOp("VFMADD213PS", "one", x, d)
	m.writeOp("VMULPS", s, d, d)
}

func (m *machine) writeVectors() {
	m.writeReductions()
	v := m.vectorRegister

	at := m.beginFunction("axpy", 0, arg{"y", 8}, arg{"x", 8}, arg{"n", 8}, arg{"alpha", 4})
	m.broadcastScalar(at["alpha"], v(12))
	m.writeElementwise([]string{"y", "x"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(0), v(0), masked)
		m.loadVector(cursorOperand(1), v(1), masked)
		m.writeOp("VFMADD231PS", v(1), v(12), v(0))
		m.storeVector(v(0), cursorOperand(0), masked)
	})
	m.endFunction()

	at = m.beginFunction("scale", 0, arg{"x", 8}, arg{"n", 8}, arg{"alpha", 4})
	m.broadcastScalar(at["alpha"], v(12))
	m.writeElementwise([]string{"x"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(0), v(0), masked)
		m.writeOp("VMULPS", v(12), v(0), v(0))
		m.storeVector(v(0), cursorOperand(0), masked)
	})
	m.endFunction()

	for _, f := range []struct{ name, op string }{{"add", "VADDPS"}, {"mul", "VMULPS"}} {
		at = m.beginFunction(f.name, 0, pointerArgs("dst", "a", "b", "n")...)
		m.writeElementwise([]string{"dst", "a", "b"}, "n", at, func(masked bool) {
			m.loadVector(cursorOperand(1), v(0), masked)
			m.loadVector(cursorOperand(2), v(1), masked)
			m.writeOp(f.op, v(1), v(0), v(0))
			m.storeVector(v(0), cursorOperand(0), masked)
		})
		m.endFunction()
	}

	at = m.beginFunction("exp", 0, pointerArgs("dst", "src", "n")...)
	m.expBounds()
	m.writeElementwise([]string{"dst", "src"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(1), v(0), masked)
		m.writeExp(v(0), v(1), v(2), v(3))
		m.storeVector(v(0), cursorOperand(0), masked)
	})
	m.endFunction()

	at = m.beginFunction("expSum", 4, arg{"dst", 8}, arg{"src", 8}, arg{"n", 8}, arg{"shift", 4})
	m.expBounds()
	m.broadcastScalar(at["shift"], v(12))
	m.zeroVector(v(9))
	m.writeElementwise([]string{"dst", "src"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(1), v(0), masked)
		m.writeOp("VSUBPS", v(12), v(0), v(0))
		m.writeExp(v(0), v(1), v(2), v(3))
		m.storeVector(v(0), cursorOperand(0), masked)
		m.writeAccumulate("VADDPS", v(0), v(9), masked)
	})
	m.writeFold("VADD", 9)
	m.writeOp("VMOVSS", "X9", at["ret"])
	m.endFunction()

	at = m.beginFunction("swiglu", 0, pointerArgs("dst", "gate", "up", "n")...)
	m.expBounds()
	m.writeElementwise([]string{"dst", "gate", "up"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(1), v(0), masked)
		m.writeSigmoid(v(0), v(4), v(1), v(2), v(3))
		m.loadVector(cursorOperand(2), v(5), masked)
		m.writeOp("VMULPS", v(4), v(0), v(0))
		m.writeOp("VMULPS", v(5), v(0), v(0))
		m.storeVector(v(0), cursorOperand(0), masked)
	})
	m.endFunction()

	at = m.beginFunction("swigluGrad", 0, pointerArgs("dgate", "dup", "gate", "up", "dout", "n")...)
	m.expBounds()
	m.writeElementwise([]string{"dgate", "dup", "gate", "up", "dout"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(2), v(0), masked)
		m.writeSigmoid(v(0), v(4), v(1), v(2), v(3))
		m.siluSlope(v(0), v(4), v(5))
		m.loadVector(cursorOperand(3), v(6), masked)
		m.loadVector(cursorOperand(4), v(7), masked)
		m.writeOp("VMULPS", v(6), v(7), v(6))
		m.writeOp("VMULPS", v(5), v(6), v(6))
		m.writeOp("VMULPS", v(4), v(0), v(0))
		m.writeOp("VMULPS", v(7), v(0), v(0))
		m.storeVector(v(6), cursorOperand(0), masked)
		m.storeVector(v(0), cursorOperand(1), masked)
	})
	m.endFunction()

	m.writeAdamW()
}

// writeAdamW reads kernel.adamwScalars by offset.
func (m *machine) writeAdamW() {
	v := m.vectorRegister
	at := m.beginFunction("adamw", 0, pointerArgs("w", "m", "v", "grad", "n", "s")...)
	m.writeOp("MOVQ", at["s"], "R8")
	scalar := func(i int, dst string) { m.broadcastScalar(fmt.Sprintf("%d(R8)", 4*i), dst) }
	// The registers 5 to 12 and 14 hold gradScale, beta1, 1-beta1, beta2, 1-beta2, rootCorr2, eps, keep, step.
	regs := []int{5, 6, 7, 8, 9, 10, 11, 12, 14}
	for i, r := range regs {
		scalar(i, v(r))
	}
	m.writeElementwise([]string{"w", "m", "v", "grad"}, "n", at, func(masked bool) {
		m.loadVector(cursorOperand(3), v(0), masked)
		m.writeOp("VMULPS", v(5), v(0), v(0)) // x = g * gradScale
		m.loadVector(cursorOperand(1), v(1), masked)
		m.writeOp("VMULPS", v(6), v(1), v(1))
		m.writeOp("VFMADD231PS", v(7), v(0), v(1)) // m
		m.storeVector(v(1), cursorOperand(1), masked)
		m.writeOp("VMULPS", v(0), v(0), v(0))
		m.loadVector(cursorOperand(2), v(2), masked)
		m.writeOp("VMULPS", v(8), v(2), v(2))
		m.writeOp("VFMADD231PS", v(9), v(0), v(2)) // v
		m.storeVector(v(2), cursorOperand(2), masked)
		m.writeOp("VSQRTPS", v(2), v(2))
		m.writeOp("VFMADD213PS", v(11), v(10), v(2)) // sqrt(v) * rootCorr2 + eps
		m.writeOp("VMULPS", v(14), v(1), v(1))
		m.writeOp("VDIVPS", v(2), v(1), v(1)) // step * m / the sum before
		m.loadVector(cursorOperand(0), v(0), masked)
		m.writeOp("VFMSUB132PS", v(12), v(1), v(0)) // w * keep - the step
		m.storeVector(v(0), cursorOperand(0), masked)
	})
	m.endFunction()
}
