package stats

import (
	"fmt"
	"math"
)

// BatchError is a fault in a batch, with its field and row.
type BatchError struct {
	// Field is the Go name of the batch's field.
	Field string
	// Row counts from 0; -1 when the fault is not in a single row.
	Row int
	// Problem describes the fault.
	Problem string
}

func (e *BatchError) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("%s: %s", e.Field, e.Problem)
	}
	return fmt.Sprintf("%s: row %d: %s", e.Field, e.Row, e.Problem)
}

// Fault returns a BatchError.
func Fault(field string, row int, format string, args ...any) error {
	return &BatchError{Field: field, Row: row, Problem: fmt.Sprintf(format, args...)}
}

// CheckRows checks that offsets delimit at least one row over exactly the tokens of the mask, and that the
// mask holds only 0 and 1.
func CheckRows(offsets []int, mask []uint8) error {
	if len(offsets) < 2 {
		return Fault("Offsets", -1, "empty batch: %d offsets, want rows + 1", len(offsets))
	}
	if offsets[0] != 0 {
		return Fault("Offsets", 0, "starts at %d, want 0", offsets[0])
	}
	rows := len(offsets) - 1
	for i := range rows {
		if offsets[i+1] < offsets[i] {
			return Fault("Offsets", i, "negative length %d", offsets[i+1]-offsets[i])
		}
	}
	if offsets[rows] != len(mask) {
		return Fault("Mask", -1, "%d tokens, Offsets end at %d", len(mask), offsets[rows])
	}
	return Parallel(rows, len(mask), func(lo, hi int) error {
		if isBinaryMask(mask[offsets[lo]:offsets[hi]]) {
			return nil
		}
		for i := lo; i < hi; i++ {
			if !isBinaryMask(mask[offsets[i]:offsets[i+1]]) {
				return Fault("Mask", i, "holds a value that is neither 0 nor 1")
			}
		}
		return nil
	})
}

// CheckLength checks that a per-token or per-row array has n entries.
func CheckLength[T any](field string, x []T, n int) error {
	if x == nil {
		return Fault(field, -1, "missing")
	}
	if len(x) != n {
		return Fault(field, -1, "%d entries, want %d", len(x), n)
	}
	return nil
}

// CheckFinite names the first row of x that holds NaN or an infinity where the mask is 1, or anywhere when
// mask is nil.
func CheckFinite(field string, x []float64, offsets []int, mask []uint8) error {
	for i := range len(offsets) - 1 {
		for t := offsets[i]; t < offsets[i+1]; t++ {
			if (mask == nil || mask[t] != 0) && !Finite(x[t]) {
				return Fault(field, i, "token %d is %v", t-offsets[i], x[t])
			}
		}
	}
	return nil
}

// CheckRowsFinite names the first row whose entry in the per-row array x is NaN or infinite.
func CheckRowsFinite(field string, x []float64) error {
	for i, v := range x {
		if !Finite(v) {
			return Fault(field, i, "is %v", v)
		}
	}
	return nil
}

// Finite reports whether x is neither NaN nor an infinity.
func Finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }
