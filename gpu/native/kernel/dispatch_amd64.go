//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// supportedSets lists the instruction sets of this processor, the widest first.
func supportedSets() []isa {
	sets := []isa{portable}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append([]isa{avx2}, sets...)
		if cpu.X86.HasAVX512F {
			sets = append([]isa{avx512}, sets...)
		}
	}
	return sets
}

// hasDot is true where this processor multiplies pairs of bfloat16 (AVX512_BF16).
var hasDot = best == avx512 && cpu.X86.HasAVX512BF16
