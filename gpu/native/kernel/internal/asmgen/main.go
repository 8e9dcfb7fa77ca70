// Asmgen writes the assembly of package kernel. One generator serves both vector widths of amd64, so that both do the same
// operations in the same order. A second, for NEON, repeats these operations. Run it by go generate in gpu/native/kernel.
package main

import (
	"fmt"
	"os"
	"strings"
)

// machine is an instruction set; file collects its text.
type machine struct {
	name string // suffix of the functions
	// lanes is the number of float32 in a vector; regs the number of vector registers.
	lanes, regs int
	reg         string // "Z" or "Y"
	file        strings.Builder
	labels      int
}

func main() {
	for name, text := range assemblyFiles() {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "write assembly:", err)
			os.Exit(1)
		}
	}
}

// assemblyFiles returns the assembly files' texts by name.
func assemblyFiles() map[string]string {
	out := map[string]string{}
	for _, m := range []*machine{
		{name: "AVX512", lanes: 16, regs: 32, reg: "Z"},
		{name: "AVX2", lanes: 8, regs: 16, reg: "Y"},
	} {
		m.writeHeader()
		m.writeGEMM()
		m.writeGather()
		m.writeVectors()
		m.writeConversions()
		if !m.hasMaskRegisters() {
			m.writeTranspose()
		}
		out[strings.ToLower(m.name)+"_amd64.s"] = m.file.String()
	}
	out["neon_arm64.s"] = newNEON().writeFile()
	return out
}

func (m *machine) hasMaskRegisters() bool      { return m.lanes == 16 }
func (m *machine) vectorBytes() int            { return 4 * m.lanes }
func (m *machine) vectorRegister(i int) string { return fmt.Sprintf("%s%d", m.reg, i) }
func (m *machine) newLabel() string            { m.labels++; return fmt.Sprintf("l%d", m.labels) }
func (m *machine) placeLabel(l string)         { fmt.Fprintf(&m.file, "%s:\n", l) }
func (m *machine) writeText(s string)          { m.file.WriteString(s) }
func (m *machine) maskReg() string             { return m.vectorRegister(13) }
func (m *machine) vectorAt(p string, vec int) string {
	return fmt.Sprintf("%d(%s)", vec*m.vectorBytes(), p)
}

// writeOp writes an instruction, operands in the Go assembler's order: sources, then destination.
func (m *machine) writeOp(name string, operands ...string) {
	fmt.Fprintf(&m.file, "\t%s %s\n", name, strings.Join(operands, ", "))
}

// writeConstOp writes an instruction whose first source is a constant from memory.
func (m *machine) writeConstOp(name, constant string, operands ...string) {
	if m.hasMaskRegisters() {
		name += ".BCST"
	}
	m.writeOp(name, append([]string{m.constantName(constant)}, operands...)...)
}

func (m *machine) constantName(name string) string {
	return fmt.Sprintf("%s%s<>(SB)", name, m.name)
}

func (m *machine) broadcastScalar(src, dst string) { m.writeOp("VBROADCASTSS", src, dst) }

func (m *machine) immediate(n int) string { return fmt.Sprintf("$%d", n) }

func (m *machine) zeroVector(dst string) {
	if m.hasMaskRegisters() {
		m.writeOp("VPXORD", dst, dst, dst)
		return
	}
	m.writeOp("VXORPS", dst, dst, dst)
}

// loadVector and storeVector move a vector. With masked they move only the lanes of the tail, and loads fill the others with
// zeros.
func (m *machine) loadVector(src, dst string, masked bool) {
	switch {
	case !masked:
		m.writeOp("VMOVUPS", src, dst)
	case m.hasMaskRegisters():
		m.writeOp("VMOVUPS.Z", src, "K1", dst)
	default:
		m.writeOp("VMASKMOVPS", src, m.maskReg(), dst)
	}
}

func (m *machine) storeVector(src, dst string, masked bool) {
	switch {
	case !masked:
		m.writeOp("VMOVUPS", src, dst)
	case m.hasMaskRegisters():
		m.writeOp("VMOVUPS", src, "K1", dst)
	default:
		m.writeOp("VMASKMOVPS", src, m.maskReg(), dst)
	}
}

// tailMask sets the mask to the first CX lanes, 0 < CX < lanes.
func (m *machine) tailMask() {
	if m.hasMaskRegisters() {
		m.writeOp("MOVL", "$1", "R12")
		m.writeOp("SHLL", "CX", "R12")
		m.writeOp("DECL", "R12")
		m.writeOp("KMOVW", "R12", "K1")
		return
	}
	m.writeOp("LEAQ", "masks<>+32(SB)", "R12")
	m.writeOp("MOVQ", "CX", "R13")
	m.writeOp("SHLQ", "$2", "R13")
	m.writeOp("SUBQ", "R13", "R12")
	m.writeOp("VMOVUPS", "(R12)", m.maskReg())
}

// arg is an argument of an assembly function.
type arg struct {
	name  string
	bytes int
}

func pointerArgs(names ...string) (out []arg) {
	for _, n := range names {
		out = append(out, arg{n, 8})
	}
	return out
}

// beginFunction begins a function and returns the places of its arguments, and of its result as ret.
func (m *machine) beginFunction(name string, ret int, args ...arg) map[string]string {
	at, off := map[string]string{}, 0
	for _, a := range args {
		off = (off + a.bytes - 1) / a.bytes * a.bytes
		at[a.name] = fmt.Sprintf("%s+%d(FP)", a.name, off)
		off += a.bytes
	}
	if ret > 0 {
		off = (off + 7) / 8 * 8
		at["ret"] = fmt.Sprintf("ret+%d(FP)", off)
		off += ret
	}
	fmt.Fprintf(&m.file, "\n// func %s%s\nTEXT ·%s%s(SB), NOSPLIT, $0-%d\n", name, m.name, name, m.name, off)
	return at
}

func (m *machine) endFunction() {
	m.writeOp("VZEROUPPER")
	m.writeOp("RET")
}

var constants = []struct {
	name string
	bits uint32
}{
	{"one", 0x3f800000},
	{"expHi", 0x42b20000}, // 89
	{"expLo", 0xc2d20000}, // -105
	{"log2e", 0x3fb8aa3b}, // 1/ln 2
	{"ln2hi", 0x3f318000}, // ln 2 in two parts, the first of few bits
	{"ln2lo", 0xb95e8083},
	{"expC7", 0x39506967}, // Cephes expf: e^r = 1 + r + r^2 (C2 + C3 r + ... + C7 r^5)
	{"expC6", 0x3ab743ce},
	{"expC5", 0x3c088908},
	{"expC4", 0x3d2aa9c1},
	{"expC3", 0x3e2aaaaa},
	{"expC2", 0x3f000000},
	{"bias", 127},
	{"negInf", 0xff800000},
	{"nan", 0x7fc00000},
	{"sign", 0x80000000},
	{"roundHalf", 0x7fff},
	{"lowBit", 1},
	{"quiet", 0x40},
}

func (m *machine) writeHeader() {
	m.writeText("// Code generated by internal/asmgen. DO NOT EDIT.\n\n//go:build !purego\n\n#include \"textflag.h\"\n\n")
	copies := m.lanes
	if m.hasMaskRegisters() {
		copies = 1
	}
	for _, c := range constants {
		for i := range copies {
			fmt.Fprintf(&m.file, "DATA %s%s<>+%d(SB)/4, $%#08x\n", c.name, m.name, 4*i, c.bits)
		}
		fmt.Fprintf(&m.file, "GLOBL %s%s<>(SB), RODATA|NOPTR, $%d\n", c.name, m.name, 4*copies)
	}
	if !m.hasMaskRegisters() {
		for i := range 8 {
			fmt.Fprintf(&m.file, "DATA masks<>+%d(SB)/4, $0xffffffff\n", 4*i)
		}
		for i := range 8 {
			fmt.Fprintf(&m.file, "DATA masks<>+%d(SB)/4, $0\n", 32+4*i)
		}
		m.writeText("GLOBL masks<>(SB), RODATA|NOPTR, $64\n")
	}
}
