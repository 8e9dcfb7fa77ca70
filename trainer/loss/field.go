package loss

import "github.com/weir-rl/weir/trainer/stats"

// field is a per-token array by its name in Batch.
type field struct {
	name string
	x    []float64
}

// firstFault names the first value that is not finite among the action tokens of row i; failing that, the
// first field overflowed.
func firstFault(i int, b *Batch, fields []field) error {
	lo, hi := b.Offsets[i], b.Offsets[i+1]
	for _, f := range fields {
		if f.x == nil {
			continue
		}
		for t := lo; t < hi; t++ {
			if b.Mask[t] != 0 && !stats.Finite(f.x[t]) {
				return stats.Fault(f.name, i, "token %d is %v", t-lo, f.x[t])
			}
		}
	}
	return stats.Fault(fields[0].name, i, "the loss overflows: the values are too large")
}
