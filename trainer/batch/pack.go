package batch

import (
	"cmp"
	"slices"
)

// Pack deals rows into micro-batches of at most budget tokens by first fit decreasing. A row is never split: a row longer than the budget
// has a micro-batch to itself. length gives a row's tokens. Within a micro-batch rows keep their order; a budget of 0 or less puts all rows
// in a single micro-batch.
func Pack(rows []int, length func(row int) int, budget int) [][]int {
	if budget <= 0 {
		return [][]int{slices.Clone(rows)}
	}
	byLength := slices.Clone(rows)
	slices.SortStableFunc(byLength, func(a, b int) int { return cmp.Compare(length(b), length(a)) })
	var bins [][]int
	var room []int
	for _, row := range byLength {
		n := length(row)
		bin := slices.IndexFunc(room, func(left int) bool { return left >= n })
		if bin < 0 {
			bins, room = append(bins, nil), append(room, budget)
			bin = len(bins) - 1
		}
		bins[bin] = append(bins[bin], row)
		room[bin] -= n
	}
	for _, bin := range bins {
		slices.Sort(bin)
	}
	return bins
}
