package main

import "fmt"

// accumulate adds (or otherwise folds) src into acc, in the tail only the masked lanes.
func (m *machine) accumulate(op, src, acc string, masked bool) {
	switch {
	case !masked:
		m.op(op, src, acc, acc)
	case m.wide():
		m.op(op, src, acc, "K1", acc)
	default:
		m.op("VANDPS", m.maskReg(), src, src)
		m.op(op, src, acc, acc)
	}
}

// fold reduces vector register i to the first lane of its X register; register 0 is scratch.
func (m *machine) fold(op string, i int) {
	x, y, z := fmt.Sprintf("X%d", i), fmt.Sprintf("Y%d", i), fmt.Sprintf("Z%d", i)
	if m.wide() {
		m.op("VEXTRACTF64X4", "$1", z, "Y0")
		m.op(op+"PS", "Y0", y, y)
	}
	m.op("VEXTRACTF128", "$1", y, "X0")
	m.op(op+"PS", "X0", x, x)
	m.op("VPERMILPS", "$0x4e", x, "X0")
	m.op(op+"PS", "X0", x, x)
	m.op("VPERMILPS", "$0xb1", x, "X0")
	m.op(op+"SS", "X0", x, x)
}

// quads runs wide over four vectors at a time while four whole ones are left.
func (m *machine) quads(pointers int, body func()) {
	loop, done := m.label(), m.label()
	m.mark(loop)
	m.op("CMPQ", "CX", fmt.Sprintf("$%d", 4*m.lanes))
	m.op("JLT", done)
	body()
	for i := range pointers {
		m.op("ADDQ", fmt.Sprintf("$%d", 4*m.bytes()), cursor(i))
	}
	m.op("SUBQ", fmt.Sprintf("$%d", 4*m.lanes), "CX")
	m.op("JMP", loop)
	m.mark(done)
}

// rest runs body on the whole vectors left, then on the masked tail.
func (m *machine) rest(pointers int, body func(masked bool)) {
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

// reductions use the accumulators 4 to 7, then fold them into 4.
func (m *machine) reductions() {
	v := m.v
	begin := func(at map[string]string, pointers ...string) {
		for i, p := range pointers {
			m.op("MOVQ", at[p], cursor(i))
		}
		m.op("MOVQ", at["n"], "CX")
		for i := range 4 {
			m.zero(v(4 + i))
		}
	}
	join := func(op string) {
		m.op(op, v(5), v(4), v(4))
		m.op(op, v(7), v(6), v(6))
		m.op(op, v(6), v(4), v(4))
	}

	at := m.text("dot", 4, ptrs("a", "b", "n")...)
	begin(at, "a", "b")
	m.quads(2, func() {
		for i := range 4 {
			m.load(m.at(cursor(0), i), v(i), false)
			m.op("VFMADD231PS", m.at(cursor(1), i), v(i), v(4+i))
		}
	})
	m.rest(2, func(masked bool) {
		m.load(mem(0), v(0), masked)
		m.load(mem(1), v(1), masked)
		m.op("VFMADD231PS", v(1), v(0), v(4))
	})
	join("VADDPS")
	m.fold("VADD", 4)
	m.op("VMOVSS", "X4", at["ret"])
	m.ret()

	at = m.text("sum", 4, ptrs("x", "n")...)
	begin(at, "x")
	m.quads(1, func() {
		for i := range 4 {
			m.op("VADDPS", m.at(cursor(0), i), v(4+i), v(4+i))
		}
	})
	m.rest(1, func(masked bool) {
		m.load(mem(0), v(0), masked)
		m.op("VADDPS", v(0), v(4), v(4))
	})
	join("VADDPS")
	m.fold("VADD", 4)
	m.op("VMOVSS", "X4", at["ret"])
	m.ret()

	m.sumSquares(begin)
	m.max(begin)
}

// sumSquares widens each half of a vector to float64.
func (m *machine) sumSquares(begin func(map[string]string, ...string)) {
	v := m.v
	half := map[bool]string{true: "Y", false: "X"}[m.wide()]
	at := m.text("sumSquares", 8, ptrs("x", "n")...)
	begin(at, "x")
	m.rest(1, func(masked bool) {
		m.load(mem(0), v(0), masked)
		if m.wide() {
			m.op("VEXTRACTF64X4", "$1", v(0), "Y1")
		} else {
			m.op("VEXTRACTF128", "$1", v(0), "X1")
		}
		m.op("VCVTPS2PD", half+"0", v(0))
		m.op("VCVTPS2PD", half+"1", v(1))
		m.op("VFMADD231PD", v(0), v(0), v(4))
		m.op("VFMADD231PD", v(1), v(1), v(5))
	})
	m.op("VADDPD", v(5), v(4), v(4))
	if m.wide() {
		m.op("VEXTRACTF64X4", "$1", "Z4", "Y0")
		m.op("VADDPD", "Y0", "Y4", "Y4")
	}
	m.op("VEXTRACTF128", "$1", "Y4", "X0")
	m.op("VADDPD", "X0", "X4", "X4")
	m.op("VPERMILPD", "$1", "X4", "X0")
	m.op("VADDSD", "X0", "X4", "X4")
	m.op("VMOVSD", "X4", at["ret"])
	m.ret()
}

// max gathers in register 8 whether any element was NaN, which MAX does not pass on.
func (m *machine) max(begin func(map[string]string, ...string)) {
	v := m.v
	at := m.text("max", 4, ptrs("x", "n")...)
	begin(at, "x")
	m.broadcast(m.constant("negInf"), v(4))
	m.zero(v(8))
	if m.wide() {
		m.op("KXORW", "K3", "K3", "K3")
	}
	nan := func(r string) {
		if m.wide() {
			m.op("VCMPPS", "$3", r, r, "K2")
			m.op("KORW", "K2", "K3", "K3")
			return
		}
		m.op("VCMPPS", "$3", r, r, v(9))
		m.op("VORPS", v(9), v(8), v(8))
	}
	m.rest(1, func(masked bool) {
		switch {
		case !masked:
			m.load(mem(0), v(0), false)
		case m.wide():
			m.broadcast(m.constant("negInf"), v(0))
			m.op("VMOVUPS", mem(0), "K1", v(0))
		default:
			m.load(mem(0), v(1), true)
			m.broadcast(m.constant("negInf"), v(0))
			m.op("VBLENDVPS", m.maskReg(), v(1), v(0), v(0))
		}
		nan(v(0))
		m.op("VMAXPS", v(0), v(4), v(4))
	})
	clean := m.label()
	m.fold("VMAX", 4)
	if m.wide() {
		m.op("KMOVW", "K3", "R8")
		m.op("TESTL", "R8", "R8")
	} else {
		m.op("VMOVMSKPS", "Y8", "R8")
		m.op("TESTL", "R8", "R8")
	}
	m.op("JEQ", clean)
	m.op("VMOVSS", m.constant("nan"), "X4")
	m.mark(clean)
	m.op("VMOVSS", "X4", at["ret"])
	m.ret()
}
