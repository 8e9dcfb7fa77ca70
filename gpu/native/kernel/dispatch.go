package kernel

// isa is the instruction set that the kernels use.
type isa uint8

const (
	portable isa = iota
	avx2
	avx512
	neon
)

func (s isa) String() string { return [...]string{"portable", "avx2", "avx512", "neon"}[s] }

// best is the widest instruction set of this processor; it is never changed.
var best = supportedSets()[0]
