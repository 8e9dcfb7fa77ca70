package check

import (
	"fmt"
	"strings"
)

// OneOf returns a fault, with the nearest valid name, unless the value is a valid name.
func OneOf(key, value string, valid ...string) error {
	best, distance := "", len(value)+1
	for _, v := range valid {
		if v == value {
			return nil
		}
		if d := Distance(value, v); d < distance {
			best, distance = v, d
		}
	}
	hint := ""
	if best != "" && (distance <= max(1, len(value)/3) || value != "" && strings.HasPrefix(best, value)) {
		hint = fmt.Sprintf(": did you mean %q?", best)
	}
	return fmt.Errorf("%s: unknown %q%s (valid: %s)", key, value, hint, strings.Join(valid, ", "))
}

// Distance is how many edits lead from one text to the other: Levenshtein's, where two neighbours that change places count
// as a single edit (the optimal string alignment).
func Distance(a, b string) int {
	rows := make([][]int, len(a)+1) // rows[i][j] is the distance of a[:i] and b[:j]
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
