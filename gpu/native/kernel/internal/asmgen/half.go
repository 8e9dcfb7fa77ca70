package main

import "fmt"

// writeConversions writes the conversions between float32 and bfloat16, of a multiple of 16 elements.
func (m *machine) writeConversions() {
	v := m.vectorRegister
	loop := func(dst, src int, body func()) {
		next := m.newLabel()
		m.placeLabel(next)
		body()
		m.writeOp("ADDQ", m.immediate(dst), cursorRegister(0))
		m.writeOp("ADDQ", m.immediate(src), cursorRegister(1))
		m.writeOp("SUBQ", m.immediate(m.lanes), "CX")
		m.writeOp("JNZ", next)
		m.endFunction()
	}
	begin := func(at map[string]string) {
		m.writeOp("MOVQ", at["dst"], cursorRegister(0))
		m.writeOp("MOVQ", at["src"], cursorRegister(1))
		m.writeOp("MOVQ", at["n"], "CX")
	}

	begin(m.beginFunction("widen", 0, pointerArgs("dst", "src", "n")...))
	loop(m.vectorBytes(), m.vectorBytes()/2, func() {
		m.widenLoad(cursorRegister(1), 0, v(0))
		m.writeOp("VMOVUPS", v(0), cursorOperand(0))
	})

	// The upper half of x + 0x7fff + bit 16 of x; of a NaN the upper half with the bit set that keeps it a NaN.
	begin(m.beginFunction("round", 0, pointerArgs("dst", "src", "n")...))
	for i, c := range []string{"roundHalf", "lowBit", "quiet"} {
		m.broadcastScalar(m.constantName(c), v(8+i))
	}
	loop(m.vectorBytes()/2, m.vectorBytes(), func() {
		m.loadVector(cursorOperand(1), v(0), false)
		m.writeOp("VPSRLD", "$16", v(0), v(1))
		if m.hasMaskRegisters() {
			m.writeOp("VPORD", v(10), v(1), v(2))
			m.writeOp("VPANDD", v(9), v(1), v(1))
		} else {
			m.writeOp("VPOR", v(10), v(1), v(2))
			m.writeOp("VPAND", v(9), v(1), v(1))
		}
		m.writeOp("VPADDD", v(8), v(1), v(1))
		m.writeOp("VPADDD", v(0), v(1), v(1))
		m.writeOp("VPSRLD", "$16", v(1), v(1))
		if m.hasMaskRegisters() {
			m.writeOp("VCMPPS", "$3", v(0), v(0), "K1")
			m.writeOp("VMOVDQA32", v(2), "K1", v(1))
			m.writeOp("VPMOVDW", v(1), cursorOperand(0))
			return
		}
		m.writeOp("VCMPPS", "$3", v(0), v(0), v(3))
		m.writeOp("VBLENDVPS", v(3), v(2), v(1), v(1))
		m.writeOp("VEXTRACTI128", "$1", v(1), "X2")
		m.writeOp("VPACKUSDW", "X2", "X1", "X1")
		m.writeOp("VMOVDQU", "X1", cursorOperand(0))
	})
}

// dotPairs adds to each lane of acc the products of the two bfloat16 in that lane of x and y: VDPBF16PS, which the
// assembler does not know.
func (m *machine) dotPairs(y, x, acc string) {
	number := func(reg string) (n byte) {
		_, _ = fmt.Sscanf(reg, "Z%d", &n)
		return n
	}
	d, v, r := number(acc), number(x), number(y)
	low := func(n byte, bit int) byte { return ^n >> bit & 1 } // the prefix has the upper bits inverted
	code := []byte{
		0x62,
		low(d, 3)<<7 | low(r, 4)<<6 | low(r, 3)<<5 | low(d, 4)<<4 | 2,
		^v&15<<3 | 1<<2 | 2,
		2<<5 | low(v, 4)<<3,
		0x52,
		3<<6 | d&7<<3 | r&7,
	}
	for i, c := range code {
		code := fmt.Sprintf("BYTE $%#02x", c)
		if i < 5 {
			code += "; "
		}
		if i == 0 {
			code = "\t" + code
		}
		m.writeText(code)
	}
	m.writeText(fmt.Sprintf(" // VDPBF16PS %s, %s, %s\n", y, x, acc))
}
