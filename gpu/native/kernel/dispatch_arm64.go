//go:build !purego

package kernel

// supportedSets lists the instruction sets of this processor, the widest first: every arm64 has NEON.
func supportedSets() []isa { return []isa{neon, portable} }

// hasDot is false: products of bfloat16 pairs are there for amd64 alone.
const hasDot = false
