package main

import "fmt"

// writeAccumulate adds (or otherwise folds) src into acc, in the tail only the masked lanes.
func (m *machine) writeAccumulate(op, src, acc string, masked bool) {
	switch {
	case !masked:
		m.writeOp(op, src, acc, acc)
	case m.hasMaskRegisters():
		m.writeOp(op, src, acc, "K1", acc)
	default:
		m.writeOp("VANDPS", m.maskReg(), src, src)
		m.writeOp(op, src, acc, acc)
	}
}

// writeFold reduces vector register i to the first lane of its X register; register 0 is scratch.
func (m *machine) writeFold(op string, i int) {
	x, y, z := fmt.Sprintf("X%d", i), fmt.Sprintf("Y%d", i), fmt.Sprintf("Z%d", i)
	if m.hasMaskRegisters() {
		m.writeOp("VEXTRACTF64X4", "$1", z, "Y0")
		m.writeOp(op+"PS", "Y0", y, y)
	}
	m.writeOp("VEXTRACTF128", "$1", y, "X0")
	m.writeOp(op+"PS", "X0", x, x)
	m.writeOp("VPERMILPS", "$0x4e", x, "X0")
	m.writeOp(op+"PS", "X0", x, x)
	m.writeOp("VPERMILPS", "$0xb1", x, "X0")
	m.writeOp(op+"SS", "X0", x, x)
}

// writeQuads runs wide over four vectors at a time while four whole vectors are left.
func (m *machine) writeQuads(pointers int, body func()) {
	loop, done := m.newLabel(), m.newLabel()
	m.placeLabel(loop)
	m.writeOp("CMPQ", "CX", fmt.Sprintf("$%d", 4*m.lanes))
	m.writeOp("JLT", done)
	body()
	for i := range pointers {
		m.writeOp("ADDQ", fmt.Sprintf("$%d", 4*m.vectorBytes()), cursorRegister(i))
	}
	m.writeOp("SUBQ", fmt.Sprintf("$%d", 4*m.lanes), "CX")
	m.writeOp("JMP", loop)
	m.placeLabel(done)
}

// writeRest runs body on the whole vectors left, then on the masked tail.
func (m *machine) writeRest(pointers int, body func(masked bool)) {
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

// writeReductions writes functions that use the accumulators 4 to 7, then fold them into 4.
func (m *machine) writeReductions() {
	v := m.vectorRegister
	begin := func(at map[string]string, pointers ...string) {
		for i, p := range pointers {
			m.writeOp("MOVQ", at[p], cursorRegister(i))
		}
		m.writeOp("MOVQ", at["n"], "CX")
		for i := range 4 {
			m.zeroVector(v(4 + i))
		}
	}
	join := func(op string) {
		m.writeOp(op, v(5), v(4), v(4))
		m.writeOp(op, v(7), v(6), v(6))
		m.writeOp(op, v(6), v(4), v(4))
	}

	at := m.beginFunction("dot", 4, pointerArgs("a", "b", "n")...)
	begin(at, "a", "b")
	m.writeQuads(2, func() {
		for i := range 4 {
			m.loadVector(m.vectorAt(cursorRegister(0), i), v(i), false)
			m.writeOp("VFMADD231PS", m.vectorAt(cursorRegister(1), i), v(i), v(4+i))
		}
	})
	m.writeRest(2, func(masked bool) {
		m.loadVector(cursorOperand(0), v(0), masked)
		m.loadVector(cursorOperand(1), v(1), masked)
		m.writeOp("VFMADD231PS", v(1), v(0), v(4))
	})
	join("VADDPS")
	m.writeFold("VADD", 4)
	m.writeOp("VMOVSS", "X4", at["ret"])
	m.endFunction()

	at = m.beginFunction("sum", 4, pointerArgs("x", "n")...)
	begin(at, "x")
	m.writeQuads(1, func() {
		for i := range 4 {
			m.writeOp("VADDPS", m.vectorAt(cursorRegister(0), i), v(4+i), v(4+i))
		}
	})
	m.writeRest(1, func(masked bool) {
		m.loadVector(cursorOperand(0), v(0), masked)
		m.writeOp("VADDPS", v(0), v(4), v(4))
	})
	join("VADDPS")
	m.writeFold("VADD", 4)
	m.writeOp("VMOVSS", "X4", at["ret"])
	m.endFunction()

	m.sumSquares(begin)
	m.writeMax(begin)
}

// sumSquares widens each half of a vector to float64.
func (m *machine) sumSquares(begin func(map[string]string, ...string)) {
	v := m.vectorRegister
	half := map[bool]string{true: "Y", false: "X"}[m.hasMaskRegisters()]
	at := m.beginFunction("sumSquares", 8, pointerArgs("x", "n")...)
	begin(at, "x")
	m.writeRest(1, func(masked bool) {
		m.loadVector(cursorOperand(0), v(0), masked)
		if m.hasMaskRegisters() {
			m.writeOp("VEXTRACTF64X4", "$1", v(0), "Y1")
		} else {
			m.writeOp("VEXTRACTF128", "$1", v(0), "X1")
		}
		m.writeOp("VCVTPS2PD", half+"0", v(0))
		m.writeOp("VCVTPS2PD", half+"1", v(1))
		m.writeOp("VFMADD231PD", v(0), v(0), v(4))
		m.writeOp("VFMADD231PD", v(1), v(1), v(5))
	})
	m.writeOp("VADDPD", v(5), v(4), v(4))
	if m.hasMaskRegisters() {
		m.writeOp("VEXTRACTF64X4", "$1", "Z4", "Y0")
		m.writeOp("VADDPD", "Y0", "Y4", "Y4")
	}
	m.writeOp("VEXTRACTF128", "$1", "Y4", "X0")
	m.writeOp("VADDPD", "X0", "X4", "X4")
	m.writeOp("VPERMILPD", "$1", "X4", "X0")
	m.writeOp("VADDSD", "X0", "X4", "X4")
	m.writeOp("VMOVSD", "X4", at["ret"])
	m.endFunction()
}

// writeMax gathers in register 8 whether any element was NaN, which MAX does not pass on.
func (m *machine) writeMax(begin func(map[string]string, ...string)) {
	v := m.vectorRegister
	at := m.beginFunction("max", 4, pointerArgs("x", "n")...)
	begin(at, "x")
	m.broadcastScalar(m.constantName("negInf"), v(4))
	m.zeroVector(v(8))
	if m.hasMaskRegisters() {
		m.writeOp("KXORW", "K3", "K3", "K3")
	}
	nan := func(r string) {
		if m.hasMaskRegisters() {
			m.writeOp("VCMPPS", "$3", r, r, "K2")
			m.writeOp("KORW", "K2", "K3", "K3")
			return
		}
		m.writeOp("VCMPPS", "$3", r, r, v(9))
		m.writeOp("VORPS", v(9), v(8), v(8))
	}
	m.writeRest(1, func(masked bool) {
		switch {
		case !masked:
			m.loadVector(cursorOperand(0), v(0), false)
		case m.hasMaskRegisters():
			m.broadcastScalar(m.constantName("negInf"), v(0))
			m.writeOp("VMOVUPS", cursorOperand(0), "K1", v(0))
		default:
			m.loadVector(cursorOperand(0), v(1), true)
			m.broadcastScalar(m.constantName("negInf"), v(0))
			m.writeOp("VBLENDVPS", m.maskReg(), v(1), v(0), v(0))
		}
		nan(v(0))
		m.writeOp("VMAXPS", v(0), v(4), v(4))
	})
	clean := m.newLabel()
	m.writeFold("VMAX", 4)
	if m.hasMaskRegisters() {
		m.writeOp("KMOVW", "K3", "R8")
		m.writeOp("TESTL", "R8", "R8")
	} else {
		m.writeOp("VMOVMSKPS", "Y8", "R8")
		m.writeOp("TESTL", "R8", "R8")
	}
	m.writeOp("JEQ", clean)
	m.writeOp("VMOVSS", m.constantName("nan"), "X4")
	m.placeLabel(clean)
	m.writeOp("VMOVSS", "X4", at["ret"])
	m.endFunction()
}
