package main

import "fmt"

// Registers of the elementwise functions: 0 to 17 free, 18 a scalar, 19 to 31 the constants of exp.
const (
	neonScalar = 18
	neonBias   = 19
	neonOne    = 31
)

var neonExp = []string{"expHi", "expLo", "log2e", "ln2hi", "ln2lo", "expC7", "expC6", "expC5", "expC4", "expC3", "expC2", "one"}

func bitsOf(name string) uint32 {
	for _, c := range constants {
		if c.name == name {
			return c.bits
		}
	}
	panic("no constant " + name)
}

func (m *neon) expConstants() {
	m.fillVector(neonBias, bitsOf("bias"))
	for i, name := range neonExp {
		m.fillVector(20+i, bitsOf(name))
	}
}

// writeExp replaces x by e^x, in the steps of the other instruction sets; n, p and t are scratch. NaN passes.
func (m *neon) writeExp(x, n, p, t int) {
	m.fmin(x, x, 20)
	m.fmax(x, x, 21)
	m.fmul(n, x, 22)
	m.frintn(n, n)
	m.fmls(x, n, 23)
	m.fmls(x, n, 24)
	m.moveVector(p, 25)
	for c := 26; c <= 30; c++ {
		m.moveVector(t, c)
		m.fmla(t, x, p)
		p, t = t, p
	}
	m.fmul(t, x, x)
	m.fmla(x, t, p)
	m.fadd(p, x, neonOne)
	// 2^n in two factors: the last product alone is rounded, and may be denormal or infinite.
	m.fcvtns(n, n)
	m.sshr(t, n, 1)
	m.sub(n, n, t)
	m.add(t, t, neonBias)
	m.add(n, n, neonBias)
	m.shl(t, t, 23)
	m.shl(n, n, 23)
	m.fmul(p, p, t)
	m.fmul(x, p, n)
}

// writeSigmoid writes 1 / (1 + e^-x) to s; n, p and t are scratch.
func (m *neon) writeSigmoid(x, s, n, p, t int) {
	m.fneg(s, x)
	m.writeExp(s, n, p, t)
	m.fadd(s, s, neonOne)
	m.fdiv(s, neonOne, s)
}

// siluSlope writes the derivative of silu at x to d, given s = sigmoid(x): s (1 + x (1 - s)); t is scratch.
func (m *neon) siluSlope(x, s, d, t int) {
	m.fsub(d, neonOne, s)
	m.moveVector(t, neonOne)
	m.fmla(t, x, d)
	m.fmul(d, t, s)
}

// writeElementwise writes a function over n elements. The body is written twice, for whole vectors and for a single element in
// a vector. A body moves the registers load and store of pointer i.
func (m *neon) writeElementwise(at map[string]string, pointers []string, body func(load, store func(i, reg int), one bool)) {
	for i, p := range pointers {
		m.writeOp("MOVD", at[p], fmt.Sprintf("R%d", i))
	}
	m.writeOp("MOVD", at["n"], "R6")
	loop, tail, done := m.newLabel(), m.newLabel(), m.newLabel()
	step := func(elements int) {
		for i := range pointers {
			m.writeOp("ADD", m.immediate(4*elements), fmt.Sprintf("R%d", i))
		}
		m.writeOp("SUB", m.immediate(elements), "R6")
	}
	m.placeLabel(loop)
	m.writeOp("CMP", "$4", "R6")
	m.writeOp("BLT", tail)
	body(func(i, reg int) { m.writeOp("VLD1", fmt.Sprintf("(R%d)", i), registerList(reg, 1, "S4")) },
		func(i, reg int) { m.writeOp("VST1", registerList(reg, 1, "S4"), fmt.Sprintf("(R%d)", i)) }, false)
	step(4)
	m.writeOp("JMP", loop)
	m.placeLabel(tail)
	m.writeOp("CBZ", "R6", done)
	body(func(i, reg int) { m.writeOp("FMOVS", fmt.Sprintf("(R%d)", i), fmt.Sprintf("F%d", reg)) },
		func(i, reg int) { m.writeOp("FMOVS", fmt.Sprintf("F%d", reg), fmt.Sprintf("(R%d)", i)) }, true)
	step(1)
	m.writeOp("JMP", tail)
	m.placeLabel(done)
}

func (m *neon) loadScalar(where string) {
	m.writeOp("FMOVS", where, fmt.Sprintf("F%d", neonScalar))
	m.writeOp("VDUP", fmt.Sprintf("V%d.S[0]", neonScalar), laneSuffix(neonScalar))
}

func (m *neon) writeElementwises() {
	simple := func(name string, args []arg, pointers []string, setup func(at map[string]string), body func(load, store func(i, reg int))) {
		at := m.beginFunction(name, 0, args...)
		if setup != nil {
			setup(at)
		}
		m.writeElementwise(at, pointers, func(load, store func(i, reg int), _ bool) { body(load, store) })
		m.writeOp("RET")
	}
	alpha := func(at map[string]string) { m.loadScalar(at["alpha"]) }
	consts := func(map[string]string) { m.expConstants() }

	simple("axpy", []arg{{"y", 8}, {"x", 8}, {"n", 8}, {"alpha", 4}}, []string{"y", "x"}, alpha, func(load, store func(i, reg int)) {
		load(0, 0)
		load(1, 1)
		m.fmla(0, 1, neonScalar)
		store(0, 0)
	})
	simple("scale", []arg{{"x", 8}, {"n", 8}, {"alpha", 4}}, []string{"x"}, alpha, func(load, store func(i, reg int)) {
		load(0, 0)
		m.fmul(0, 0, neonScalar)
		store(0, 0)
	})
	simple("add", pointerArgs("dst", "a", "b", "n"), []string{"dst", "a", "b"}, nil, m.binaryBody(m.fadd))
	simple("mul", pointerArgs("dst", "a", "b", "n"), []string{"dst", "a", "b"}, nil, m.binaryBody(m.fmul))
	simple("exp", pointerArgs("dst", "src", "n"), []string{"dst", "src"}, consts, func(load, store func(i, reg int)) {
		load(1, 0)
		m.writeExp(0, 1, 2, 3)
		store(0, 0)
	})
	simple("swiglu", pointerArgs("dst", "gate", "up", "n"), []string{"dst", "gate", "up"}, consts, func(load, store func(i, reg int)) {
		load(1, 0)
		m.writeSigmoid(0, 4, 1, 2, 3)
		load(2, 5)
		m.fmul(0, 0, 4)
		m.fmul(0, 0, 5)
		store(0, 0)
	})
	simple("swigluGrad", pointerArgs("dgate", "dup", "gate", "up", "dout", "n"), []string{"dgate", "dup", "gate", "up", "dout"}, consts,
		func(load, store func(i, reg int)) {
			load(2, 0)
			m.writeSigmoid(0, 4, 1, 2, 3)
			m.siluSlope(0, 4, 5, 6)
			load(3, 6)
			load(4, 7)
			m.fmul(6, 7, 6)
			m.fmul(6, 6, 5)
			m.fmul(0, 0, 4)
			m.fmul(0, 0, 7)
			store(0, 6)
			store(1, 0)
		})
}

func (m *neon) binaryBody(op func(d, a, b int)) func(load, store func(i, reg int)) {
	return func(load, store func(i, reg int)) {
		load(1, 0)
		load(2, 1)
		op(0, 0, 1)
		store(0, 0)
	}
}

// writeAdamW reads kernel.adamwScalars by offset, into the registers 16 to 24: gradScale, beta1, 1-beta1, beta2, 1-beta2, rootCorr2,
// eps, keep, step.
func (m *neon) writeAdamW() {
	at := m.beginFunction("adamw", 0, pointerArgs("w", "m", "v", "grad", "n", "s")...)
	m.writeOp("MOVD", at["s"], "R8")
	for i := range 9 {
		m.writeOp("VLD1R.P", "4(R8)", "["+laneSuffix(16+i)+"]")
	}
	m.writeElementwise(at, []string{"w", "m", "v", "grad"}, func(load, store func(i, reg int), _ bool) {
		load(3, 0)
		m.fmul(0, 0, 16) // x = g * gradScale
		load(1, 1)
		m.fmul(1, 1, 17)
		m.fmla(1, 0, 18) // m
		store(1, 1)
		m.fmul(0, 0, 0)
		load(2, 2)
		m.fmul(2, 2, 19)
		m.fmla(2, 0, 20) // v
		store(2, 2)
		m.fsqrt(2, 2)
		m.moveVector(3, 22)
		m.fmla(3, 2, 21) // sqrt(v) * rootCorr2 + eps
		m.fmul(1, 1, 24)
		m.fdiv(1, 1, 3) // step * m / the sum before
		m.fneg(1, 1)
		load(0, 0)
		m.fmla(1, 0, 23) // w * keep - the step
		store(0, 1)
	})
	m.writeOp("RET")
}

// writeReductions writes functions that leave four lanes, or two for sumSquares, in out: the caller adds them up.
func (m *neon) writeReductions() {
	end := func(at map[string]string, reg int, arrangement string) {
		m.writeOp("MOVD", at["out"], "R7")
		m.writeOp("VST1", registerList(reg, 1, arrangement), "(R7)")
		m.writeOp("RET")
	}
	at := m.beginFunction("dot", 0, pointerArgs("a", "b", "n", "out")...)
	for i := range 4 {
		m.clearVector(16 + i)
	}
	for i, p := range []string{"a", "b"} {
		m.writeOp("MOVD", at[p], fmt.Sprintf("R%d", i))
	}
	m.writeOp("MOVD", at["n"], "R6")
	loop, done := m.newLabel(), m.newLabel()
	m.placeLabel(loop)
	m.writeOp("CMP", "$16", "R6")
	m.writeOp("BLT", done)
	m.writeOp("VLD1.P", "64(R0)", registerList(0, 4, "S4"))
	m.writeOp("VLD1.P", "64(R1)", registerList(4, 4, "S4"))
	for i := range 4 {
		m.fmla(16+i, i, 4+i)
	}
	m.writeOp("SUB", "$16", "R6")
	m.writeOp("JMP", loop)
	m.placeLabel(done)
	m.reduceRest(2, func(load func(i, reg int)) {
		load(0, 0)
		load(1, 1)
		m.fmla(16, 0, 1)
	})
	m.fadd(16, 16, 17)
	m.fadd(18, 18, 19)
	m.fadd(16, 16, 18)
	end(at, 16, "S4")

	at = m.beginFunction("sum", 0, pointerArgs("x", "n", "out")...)
	m.clearVector(16)
	m.beginReduction(at)
	m.reduceRest(1, func(load func(i, reg int)) {
		load(0, 0)
		m.fadd(16, 16, 0)
	})
	end(at, 16, "S4")

	at = m.beginFunction("sumSquares", 0, pointerArgs("x", "n", "out")...)
	m.clearVector(16)
	m.clearVector(17)
	m.beginReduction(at)
	m.reduceRest(1, func(load func(i, reg int)) {
		load(0, 0)
		m.writeWord("FCVTL", 0x0e617800, 1, 0, 0)
		m.writeWord("FCVTL2", 0x4e617800, 2, 0, 0)
		m.writeWord("FMLA.D2", 0x4e60cc00, 16, 1, 1)
		m.writeWord("FMLA.D2", 0x4e60cc00, 17, 2, 2)
	})
	m.writeWord("FADD.D2", 0x4e60d400, 16, 16, 17)
	end(at, 16, "D2")

	at = m.beginFunction("max", 0, pointerArgs("x", "n", "out")...)
	m.fillVector(16, bitsOf("negInf"))
	m.fillVector(17, bitsOf("negInf"))
	m.beginReduction(at)
	m.restFrom(1, 17, func(load func(i, reg int)) {
		load(0, 0)
		m.fmax(16, 16, 0)
	})
	end(at, 16, "S4")

	at = m.beginFunction("expSum", 0, append(pointerArgs("dst", "src", "n", "out"), arg{"shift", 4})...)
	m.expConstants()
	m.loadScalar(at["shift"])
	m.clearVector(17)
	m.writeElementwise(at, []string{"dst", "src"}, func(load, store func(i, reg int), one bool) {
		load(1, 0)
		m.fsub(0, 0, neonScalar)
		m.writeExp(0, 1, 2, 3)
		store(0, 0)
		if one {
			m.writeOp("FMOVS", "F0", "F0") // the other lanes hold no element
		}
		m.fadd(17, 17, 0)
	})
	end(at, 17, "S4")
}

func (m *neon) beginReduction(at map[string]string) {
	m.writeOp("MOVD", at["x"], "R0")
	m.writeOp("MOVD", at["n"], "R6")
}

// reduceRest runs body on the whole vectors left, then on each element left beside zeros.
func (m *neon) reduceRest(pointers int, body func(load func(i, reg int))) {
	m.restFrom(pointers, -1, body)
}

// restFrom is reduceRest with the lanes of a register in the place of the zeros.
func (m *neon) restFrom(pointers, idle int, body func(load func(i, reg int))) {
	loop, tail, done := m.newLabel(), m.newLabel(), m.newLabel()
	step := func(elements int) {
		for i := range pointers {
			m.writeOp("ADD", m.immediate(4*elements), fmt.Sprintf("R%d", i))
		}
		m.writeOp("SUB", m.immediate(elements), "R6")
	}
	m.placeLabel(loop)
	m.writeOp("CMP", "$4", "R6")
	m.writeOp("BLT", tail)
	body(func(i, reg int) { m.writeOp("VLD1", fmt.Sprintf("(R%d)", i), registerList(reg, 1, "S4")) })
	step(4)
	m.writeOp("JMP", loop)
	m.placeLabel(tail)
	m.writeOp("CBZ", "R6", done)
	body(func(i, reg int) {
		if idle < 0 {
			m.writeOp("FMOVS", fmt.Sprintf("(R%d)", i), fmt.Sprintf("F%d", reg))
			return
		}
		m.moveVector(reg, idle)
		m.writeOp("VLD1", fmt.Sprintf("(R%d)", i), fmt.Sprintf("V%d.S[0]", reg))
	})
	step(1)
	m.writeOp("JMP", tail)
	m.placeLabel(done)
}

// writeConversions writes the conversions between float32 and bfloat16, of a multiple of four elements.
func (m *neon) writeConversions() {
	loop := func(body func()) {
		next := m.newLabel()
		m.placeLabel(next)
		body()
		m.writeOp("SUB", "$4", "R6")
		m.writeOp("CBNZ", "R6", next)
		m.writeOp("RET")
	}
	begin := func(at map[string]string) {
		for i, p := range []string{"dst", "src"} {
			m.writeOp("MOVD", at[p], fmt.Sprintf("R%d", i))
		}
		m.writeOp("MOVD", at["n"], "R6")
	}
	begin(m.beginFunction("widen", 0, pointerArgs("dst", "src", "n")...))
	loop(func() {
		m.writeOp("VLD1.P", "8(R1)", registerList(0, 1, "H4"))
		m.widenHalves(0, 0)
		m.writeOp("VST1.P", registerList(0, 1, "S4"), "16(R0)")
	})

	// The upper half of x + 0x7fff + bit 16 of x; of a NaN the upper half with the bit set that keeps it a NaN.
	begin(m.beginFunction("round", 0, pointerArgs("dst", "src", "n")...))
	for i, c := range []string{"roundHalf", "lowBit", "quiet"} {
		m.fillVector(16+i, bitsOf(c))
	}
	loop(func() {
		m.writeOp("VLD1.P", "16(R1)", registerList(0, 1, "S4"))
		m.ushr(1, 0, 16)
		m.orr(2, 1, 18)
		m.and(1, 1, 17)
		m.add(1, 1, 16)
		m.add(1, 1, 0)
		m.ushr(1, 1, 16)
		m.fcmeq(3, 0, 0)
		m.bif(1, 2, 3)
		m.narrowVector(1, 1)
		m.writeOp("VST1.P", registerList(1, 1, "H4"), "8(R0)")
	})
}
