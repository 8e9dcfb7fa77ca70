package stats

import (
	"fmt"
	"strings"
)

// Choose checks that value is one of the valid names, and otherwise names the nearest one.
func Choose(key, value string, valid ...string) error {
	best, distance := "", len(value)+1
	for _, v := range valid {
		if v == value {
			return nil
		}
		if d := editDistance(value, v); d < distance {
			best, distance = v, d
		}
	}
	hint := ""
	if best != "" && (distance <= max(1, len(value)/3) || value != "" && strings.HasPrefix(best, value)) {
		hint = fmt.Sprintf(": did you mean %q?", best)
	}
	return fmt.Errorf("%s: unknown %q%s (valid: %s)", key, value, hint, strings.Join(valid, ", "))
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Resize returns x with length n, its array reused when large enough. The contents are not cleared.
func Resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}
