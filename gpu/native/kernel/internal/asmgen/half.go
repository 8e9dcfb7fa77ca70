package main

import "fmt"

// conversions between float32 and bfloat16, of a number of elements that 16 divides.
func (m *machine) conversions() {
	v := m.v
	loop := func(dst, src int, body func()) {
		next := m.label()
		m.mark(next)
		body()
		m.op("ADDQ", m.imm(dst), cursor(0))
		m.op("ADDQ", m.imm(src), cursor(1))
		m.op("SUBQ", m.imm(m.lanes), "CX")
		m.op("JNZ", next)
		m.ret()
	}
	begin := func(at map[string]string) {
		m.op("MOVQ", at["dst"], cursor(0))
		m.op("MOVQ", at["src"], cursor(1))
		m.op("MOVQ", at["n"], "CX")
	}

	begin(m.text("widen", 0, ptrs("dst", "src", "n")...))
	loop(m.bytes(), m.bytes()/2, func() {
		m.widenLoad(cursor(1), 0, v(0))
		m.op("VMOVUPS", v(0), mem(0))
	})

	// x + 0x7fff + bit 16 of x, its upper half; of NaN the upper half with the bit set that keeps it one.
	begin(m.text("round", 0, ptrs("dst", "src", "n")...))
	for i, c := range []string{"roundHalf", "lowBit", "quiet"} {
		m.broadcast(m.constant(c), v(8+i))
	}
	loop(m.bytes()/2, m.bytes(), func() {
		m.load(mem(1), v(0), false)
		m.op("VPSRLD", "$16", v(0), v(1))
		if m.wide() {
			m.op("VPORD", v(10), v(1), v(2))
			m.op("VPANDD", v(9), v(1), v(1))
		} else {
			m.op("VPOR", v(10), v(1), v(2))
			m.op("VPAND", v(9), v(1), v(1))
		}
		m.op("VPADDD", v(8), v(1), v(1))
		m.op("VPADDD", v(0), v(1), v(1))
		m.op("VPSRLD", "$16", v(1), v(1))
		if m.wide() {
			m.op("VCMPPS", "$3", v(0), v(0), "K1")
			m.op("VMOVDQA32", v(2), "K1", v(1))
			m.op("VPMOVDW", v(1), mem(0))
			return
		}
		m.op("VCMPPS", "$3", v(0), v(0), v(3))
		m.op("VBLENDVPS", v(3), v(2), v(1), v(1))
		m.op("VEXTRACTI128", "$1", v(1), "X2")
		m.op("VPACKUSDW", "X2", "X1", "X1")
		m.op("VMOVDQU", "X1", mem(0))
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
		m.raw(code)
	}
	m.raw(fmt.Sprintf(" // VDPBF16PS %s, %s, %s\n", y, x, acc))
}
