package main

import "fmt"

// storage is what a panel of B holds: float32, bfloat16 that is widened, or pairs of bfloat16 along k, which meet such pairs of A.
// The last two are packed, so that their rows are whole whatever the mask of C.
type storage int

const (
	floats storage = iota
	halves
	pairs
)

// gemm writes one function for each width of a column panel in vectors: it walks down the rows of A and C
// in tiles that fill the registers. Offsets are those of kernel.tile.
func (m *machine) gemm() {
	heights := map[int]int{1: 12, 2: 6}
	if m.wide() {
		heights = map[int]int{1: 12, 2: 12, 3: 8, 4: 6}
	}
	for nv := 1; nv <= len(heights); nv++ {
		m.panel(fmt.Sprintf("gemm%d", nv), nv, heights[nv], true, floats)
		m.panel(fmt.Sprintf("gemm%dHalf", nv), nv, heights[nv], true, halves)
		if m.wide() {
			m.panel(fmt.Sprintf("gemm%dPairs", nv), nv, heights[nv], true, pairs)
		}
	}
	if !m.wide() {
		// Masked stores are slow on some processors; with AVX-512 they are as fast as others.
		m.panel("gemmFull", 2, heights[2], false, floats)
		m.panel("gemmFullHalf", 2, heights[2], false, halves)
	}
}

func (m *machine) panel(name string, nv, height int, masked bool, b storage) {
	at := m.text(name, 0, ptrs("t")...)
	m.op("MOVQ", at["t"], "CX")
	for i, r := range []string{"R8", "R9", "R10", "SI", "R11", "DI", "R12", "R13"} {
		m.op("MOVQ", fmt.Sprintf("%d(CX)", 8*i), r)
	}
	if m.wide() {
		m.op("KMOVW", "80(CX)", "K1")
	} else {
		m.op("VMOVUPS", "80(CX)", m.v(15))
	}
	loop, done := m.label(), m.label()
	tiles := make([]string, height+1)
	for h := 1; h <= height; h++ {
		tiles[h] = m.label()
	}
	m.mark(loop)
	for h := height; h >= 1; h-- {
		m.op("CMPQ", "R13", fmt.Sprintf("$%d", h))
		m.op("JGE", tiles[h])
	}
	m.op("JMP", done)
	for h := height; h >= 1; h-- {
		m.mark(tiles[h])
		m.tile(nv, h, at["t"], masked, b)
		m.op("SUBQ", fmt.Sprintf("$%d", h), "R13")
		m.op("JMP", loop)
	}
	m.mark(done)
	m.ret()
}

// tile computes h rows of nv vectors. R8 A, R9 its row step, R10 its step along k, SI B, R11 its row step,
// DI C, R12 its row step, all in bytes; R13 the rows left. R8 and DI move on.
func (m *machine) tile(nv, h int, args string, masked bool, holds storage) {
	acc := func(i, v int) string { return m.v(i*nv + v) }
	b := func(v int) string { return m.v(h*nv + v) }
	mask := m.v(15)
	edge := func(v int) bool { return masked && v == nv-1 }
	load := func(src, dst string, v int) {
		switch {
		case !edge(v):
			m.op("VMOVUPS", src, dst)
		case m.wide():
			m.op("VMOVUPS.Z", src, "K1", dst)
		default:
			m.op("VMASKMOVPS", src, mask, dst)
		}
	}
	store := func(src, dst string, v int) {
		switch {
		case !edge(v):
			m.op("VMOVUPS", src, dst)
		case m.wide():
			m.op("VMOVUPS", src, "K1", dst)
		default:
			m.op("VMASKMOVPS", src, mask, dst)
		}
	}
	m.op("MOVQ", args, "CX")
	fresh, begin, next := m.label(), m.label(), m.label()
	m.op("CMPQ", "72(CX)", "$0")
	m.op("JEQ", fresh)
	m.op("MOVQ", "DI", "AX")
	for i := range h {
		for v := range nv {
			load(m.at("AX", v), acc(i, v), v)
		}
		if i < h-1 {
			m.op("ADDQ", "R12", "AX")
		}
	}
	m.op("JMP", begin)
	m.mark(fresh)
	for i := range h {
		for v := range nv {
			m.zero(acc(i, v))
		}
	}
	m.mark(begin)
	// One pointer for every three rows: base, base + step, base + 2 step.
	rows := []string{"AX", "BX", "DX", "R15"}[:(h+2)/3]
	m.op("MOVQ", "R8", "AX")
	for i := 1; i < len(rows); i++ {
		m.op("LEAQ", fmt.Sprintf("(%s)(R9*2)", rows[i-1]), rows[i])
		m.op("ADDQ", "R9", rows[i])
	}
	m.op("MOVQ", "SI", "R14")
	m.op("MOVQ", "64(CX)", "CX")
	m.raw("\tPCALIGN $32\n")
	m.mark(next)
	for v := range nv {
		switch holds {
		case halves:
			m.widenLoad("R14", v, b(v))
		case pairs:
			m.op("VMOVUPS", m.at("R14", v), b(v))
		default:
			load(m.at("R14", v), b(v), v)
		}
	}
	m.op("ADDQ", "R11", "R14")
	for i := range h {
		x := m.v(h*nv + nv)
		if m.wide() {
			x = m.v(h*nv + nv + i%min(2, m.regs-h*nv-nv))
		}
		src := []string{"(%s)", "(%s)(R9*1)", "(%s)(R9*2)"}[i%3]
		m.broadcast(fmt.Sprintf(src, rows[i/3]), x)
		for v := range nv {
			if holds == pairs {
				m.dotPairs(b(v), x, acc(i, v))
				continue
			}
			m.op("VFMADD231PS", b(v), x, acc(i, v))
		}
	}
	for _, r := range rows {
		m.op("ADDQ", "R10", r)
	}
	m.op("DECQ", "CX")
	m.op("JNZ", next)
	for i := range h {
		for v := range nv {
			store(acc(i, v), m.at("DI", v), v)
		}
		m.op("ADDQ", "R12", "DI")
		m.op("ADDQ", "R9", "R8")
	}
}

// widenLoad reads vector v of bfloat16 numbers at p as float32.
func (m *machine) widenLoad(p string, v int, dst string) {
	m.op("VPMOVZXWD", fmt.Sprintf("%d(%s)", v*m.bytes()/2, p), dst)
	m.op("VPSLLD", "$16", dst, dst)
}

// gather writes the copy of k rows of 48 floats, step bytes apart, to one place.
func (m *machine) gather() {
	at := m.text("gather48", 0, ptrs("dst", "src", "step", "k")...)
	for i, name := range []string{"dst", "src"} {
		m.op("MOVQ", at[name], cursor(i))
	}
	m.op("MOVQ", at["step"], "R8")
	m.op("MOVQ", at["k"], "CX")
	loop := m.label()
	m.mark(loop)
	for v := range 48 / m.lanes {
		m.op("VMOVUPS", m.at(cursor(1), v), m.v(v))
	}
	for v := range 48 / m.lanes {
		m.op("VMOVUPS", m.v(v), m.at(cursor(0), v))
	}
	m.op("ADDQ", "R8", cursor(1))
	m.op("ADDQ", "$192", cursor(0))
	m.op("DECQ", "CX")
	m.op("JNZ", loop)
	m.ret()
}

// transpose writes the 8 by 8 transposes that pack B: eight rows of src, 8*n columns, become 8*n rows of dst.
func (m *machine) transpose() {
	m.raw("\n// func transpose8(dst *float32, dstStep uintptr, src *float32, srcStep uintptr, n int)\nTEXT ·transpose8(SB), NOSPLIT, $0-40\n")
	m.raw(`	MOVQ dst+0(FP), DI
	MOVQ dstStep+8(FP), R9
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R8
	MOVQ n+32(FP), CX
	LEAQ (R8)(R8*2), R10
	LEAQ (R9)(R9*2), R11
loop:
	TESTQ CX, CX
	JEQ done
	LEAQ (SI)(R8*4), AX
	LEAQ (DI)(R9*4), BX
`)
	// Row i of the low four columns joined with row i+4's, then of the high four.
	addr := func(base string, i int) string {
		return []string{"(%s)", "(%s)(R8*1)", "(%s)(R8*2)", "(%s)(R10*1)"}[i] + ""
	}
	at := func(base string, i, off int) string {
		s := fmt.Sprintf(addr(base, i), base)
		if off > 0 {
			s = fmt.Sprint(off) + s
		}
		return s
	}
	for half := range 2 {
		off := 16 * half
		for i := range 4 {
			m.op("VMOVUPS", at("SI", i, off), fmt.Sprintf("X%d", i))
		}
		for i := range 4 {
			m.op("VINSERTF128", "$1", at("AX", i, off), fmt.Sprintf("Y%d", i), fmt.Sprintf("Y%d", i))
		}
		m.op("VUNPCKLPS", "Y1", "Y0", "Y4")
		m.op("VUNPCKHPS", "Y1", "Y0", "Y5")
		m.op("VUNPCKLPS", "Y3", "Y2", "Y6")
		m.op("VUNPCKHPS", "Y3", "Y2", "Y7")
		m.op("VUNPCKLPD", "Y6", "Y4", "Y0")
		m.op("VUNPCKHPD", "Y6", "Y4", "Y1")
		m.op("VUNPCKLPD", "Y7", "Y5", "Y2")
		m.op("VUNPCKHPD", "Y7", "Y5", "Y3")
		base := []string{"DI", "BX"}[half]
		for i := range 4 {
			m.op("VMOVUPS", fmt.Sprintf("Y%d", i), fmt.Sprintf([]string{"(%s)", "(%s)(R9*1)", "(%s)(R9*2)", "(%s)(R11*1)"}[i], base))
		}
	}
	m.raw(`	ADDQ $32, SI
	LEAQ (DI)(R9*8), DI
	DECQ CX
	JMP loop
done:
	VZEROUPPER
	RET
`)
}
