package main

import "fmt"

// storage is how a panel of B holds its numbers: float32, bfloat16 that is widened, or pairs of bfloat16 along k, which meet
// pairs of A. Bfloat16 panels are packed, so that their rows are whole whatever the mask of C.
type storage int

const (
	floats storage = iota
	halves
	pairs
)

// writeGEMM writes a function for each width of a column panel in vectors. It walks down the rows of A and C in tiles that fill
// the registers. Offsets are those of kernel.tile.
func (m *machine) writeGEMM() {
	heights := map[int]int{1: 12, 2: 6}
	if m.hasMaskRegisters() {
		heights = map[int]int{1: 12, 2: 12, 3: 8, 4: 6}
	}
	for nv := 1; nv <= len(heights); nv++ {
		m.writePanel(fmt.Sprintf("gemm%d", nv), nv, heights[nv], true, floats)
		m.writePanel(fmt.Sprintf("gemm%dHalf", nv), nv, heights[nv], true, halves)
		if m.hasMaskRegisters() {
			m.writePanel(fmt.Sprintf("gemm%dPairs", nv), nv, heights[nv], true, pairs)
		}
	}
	if !m.hasMaskRegisters() {
		// Masked stores are slow on some processors; with AVX-512 they are as fast as whole stores.
		m.writePanel("gemmFull", 2, heights[2], false, floats)
		m.writePanel("gemmFullHalf", 2, heights[2], false, halves)
	}
}

func (m *machine) writePanel(name string, nv, height int, masked bool, b storage) {
	at := m.beginFunction(name, 0, pointerArgs("t")...)
	m.writeOp("MOVQ", at["t"], "CX")
	for i, r := range []string{"R8", "R9", "R10", "SI", "R11", "DI", "R12", "R13"} {
		m.writeOp("MOVQ", fmt.Sprintf("%d(CX)", 8*i), r)
	}
	if m.hasMaskRegisters() {
		m.writeOp("KMOVW", "80(CX)", "K1")
	} else {
		m.writeOp("VMOVUPS", "80(CX)", m.vectorRegister(15))
	}
	loop, done := m.newLabel(), m.newLabel()
	tiles := make([]string, height+1)
	for h := 1; h <= height; h++ {
		tiles[h] = m.newLabel()
	}
	m.placeLabel(loop)
	for h := height; h >= 1; h-- {
		m.writeOp("CMPQ", "R13", fmt.Sprintf("$%d", h))
		m.writeOp("JGE", tiles[h])
	}
	m.writeOp("JMP", done)
	for h := height; h >= 1; h-- {
		m.placeLabel(tiles[h])
		m.writeTile(nv, h, at["t"], masked, b)
		m.writeOp("SUBQ", fmt.Sprintf("$%d", h), "R13")
		m.writeOp("JMP", loop)
	}
	m.placeLabel(done)
	m.endFunction()
}

// writeTile computes h rows of nv vectors. R8 A, R9 its row step, R10 its step along k, SI B, R11 its row step,
// DI C, R12 its row step, all in bytes; R13 the rows left. R8 and DI move on.
func (m *machine) writeTile(nv, h int, args string, masked bool, holds storage) {
	acc := func(i, v int) string { return m.vectorRegister(i*nv + v) }
	b := func(v int) string { return m.vectorRegister(h*nv + v) }
	mask := m.vectorRegister(15)
	edge := func(v int) bool { return masked && v == nv-1 }
	load := func(src, dst string, v int) {
		switch {
		case !edge(v):
			m.writeOp("VMOVUPS", src, dst)
		case m.hasMaskRegisters():
			m.writeOp("VMOVUPS.Z", src, "K1", dst)
		default:
			m.writeOp("VMASKMOVPS", src, mask, dst)
		}
	}
	store := func(src, dst string, v int) {
		switch {
		case !edge(v):
			m.writeOp("VMOVUPS", src, dst)
		case m.hasMaskRegisters():
			m.writeOp("VMOVUPS", src, "K1", dst)
		default:
			m.writeOp("VMASKMOVPS", src, mask, dst)
		}
	}
	m.writeOp("MOVQ", args, "CX")
	fresh, begin, next := m.newLabel(), m.newLabel(), m.newLabel()
	m.writeOp("CMPQ", "72(CX)", "$0")
	m.writeOp("JEQ", fresh)
	m.writeOp("MOVQ", "DI", "AX")
	for i := range h {
		for v := range nv {
			load(m.vectorAt("AX", v), acc(i, v), v)
		}
		if i < h-1 {
			m.writeOp("ADDQ", "R12", "AX")
		}
	}
	m.writeOp("JMP", begin)
	m.placeLabel(fresh)
	for i := range h {
		for v := range nv {
			m.zeroVector(acc(i, v))
		}
	}
	m.placeLabel(begin)
	// A pointer for every three rows: base, base + step, base + 2 step.
	rows := []string{"AX", "BX", "DX", "R15"}[:(h+2)/3]
	m.writeOp("MOVQ", "R8", "AX")
	for i := 1; i < len(rows); i++ {
		m.writeOp("LEAQ", fmt.Sprintf("(%s)(R9*2)", rows[i-1]), rows[i])
		m.writeOp("ADDQ", "R9", rows[i])
	}
	m.writeOp("MOVQ", "SI", "R14")
	m.writeOp("MOVQ", "64(CX)", "CX")
	m.writeText("\tPCALIGN $32\n")
	m.placeLabel(next)
	for v := range nv {
		switch holds {
		case halves:
			m.widenLoad("R14", v, b(v))
		case pairs:
			m.writeOp("VMOVUPS", m.vectorAt("R14", v), b(v))
		default:
			load(m.vectorAt("R14", v), b(v), v)
		}
	}
	m.writeOp("ADDQ", "R11", "R14")
	for i := range h {
		x := m.vectorRegister(h*nv + nv)
		if m.hasMaskRegisters() {
			x = m.vectorRegister(h*nv + nv + i%min(2, m.regs-h*nv-nv))
		}
		src := []string{"(%s)", "(%s)(R9*1)", "(%s)(R9*2)"}[i%3]
		m.broadcastScalar(fmt.Sprintf(src, rows[i/3]), x)
		for v := range nv {
			if holds == pairs {
				m.dotPairs(b(v), x, acc(i, v))
				continue
			}
			m.writeOp("VFMADD231PS", b(v), x, acc(i, v))
		}
	}
	for _, r := range rows {
		m.writeOp("ADDQ", "R10", r)
	}
	m.writeOp("DECQ", "CX")
	m.writeOp("JNZ", next)
	for i := range h {
		for v := range nv {
			store(acc(i, v), m.vectorAt("DI", v), v)
		}
		m.writeOp("ADDQ", "R12", "DI")
		m.writeOp("ADDQ", "R9", "R8")
	}
}

// widenLoad reads vector v of bfloat16 numbers at p as float32.
func (m *machine) widenLoad(p string, v int, dst string) {
	m.writeOp("VPMOVZXWD", fmt.Sprintf("%d(%s)", v*m.vectorBytes()/2, p), dst)
	m.writeOp("VPSLLD", "$16", dst, dst)
}

// writeGather writes the copy of k rows of 48 floats, step bytes apart, to consecutive memory.
func (m *machine) writeGather() {
	at := m.beginFunction("gather48", 0, pointerArgs("dst", "src", "step", "k")...)
	for i, name := range []string{"dst", "src"} {
		m.writeOp("MOVQ", at[name], cursorRegister(i))
	}
	m.writeOp("MOVQ", at["step"], "R8")
	m.writeOp("MOVQ", at["k"], "CX")
	loop := m.newLabel()
	m.placeLabel(loop)
	for v := range 48 / m.lanes {
		m.writeOp("VMOVUPS", m.vectorAt(cursorRegister(1), v), m.vectorRegister(v))
	}
	for v := range 48 / m.lanes {
		m.writeOp("VMOVUPS", m.vectorRegister(v), m.vectorAt(cursorRegister(0), v))
	}
	m.writeOp("ADDQ", "R8", cursorRegister(1))
	m.writeOp("ADDQ", "$192", cursorRegister(0))
	m.writeOp("DECQ", "CX")
	m.writeOp("JNZ", loop)
	m.endFunction()
}

// writeTranspose writes the 8 by 8 transposes that pack B: eight rows of src, 8*n columns, become 8*n rows of dst.
func (m *machine) writeTranspose() {
	m.writeText("\n// func transpose8(dst *float32, dstStep uintptr, src *float32, srcStep uintptr, n int)\nTEXT ·transpose8(SB), NOSPLIT, $0-40\n")
	m.writeText(`	MOVQ dst+0(FP), DI
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
			m.writeOp("VMOVUPS", at("SI", i, off), fmt.Sprintf("X%d", i))
		}
		for i := range 4 {
			m.writeOp("VINSERTF128", "$1", at("AX", i, off), fmt.Sprintf("Y%d", i), fmt.Sprintf("Y%d", i))
		}
		m.writeOp("VUNPCKLPS", "Y1", "Y0", "Y4")
		m.writeOp("VUNPCKHPS", "Y1", "Y0", "Y5")
		m.writeOp("VUNPCKLPS", "Y3", "Y2", "Y6")
		m.writeOp("VUNPCKHPS", "Y3", "Y2", "Y7")
		m.writeOp("VUNPCKLPD", "Y6", "Y4", "Y0")
		m.writeOp("VUNPCKHPD", "Y6", "Y4", "Y1")
		m.writeOp("VUNPCKLPD", "Y7", "Y5", "Y2")
		m.writeOp("VUNPCKHPD", "Y7", "Y5", "Y3")
		base := []string{"DI", "BX"}[half]
		for i := range 4 {
			m.writeOp("VMOVUPS", fmt.Sprintf("Y%d", i), fmt.Sprintf([]string{"(%s)", "(%s)(R9*1)", "(%s)(R9*2)", "(%s)(R11*1)"}[i], base))
		}
	}
	m.writeText(`	ADDQ $32, SI
	LEAQ (DI)(R9*8), DI
	DECQ CX
	JMP loop
done:
	VZEROUPPER
	RET
`)
}
