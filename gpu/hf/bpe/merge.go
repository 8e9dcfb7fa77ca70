package bpe

import "container/heap"

// short is how many tokens a piece may have for its pairs to be looked through at each merge; a longer one has a heap.
const short = 24

// encodePiece appends the tokens of a piece, merged in the order of rank, leftmost first. barred are tokens that may not be made;
// nil bars none.
func (v *vocabulary) encodePiece(dst []int32, piece string, barred []bool) []int32 {
	begin := len(dst)
	for i := range len(piece) {
		dst = append(dst, v.single[piece[i]])
	}
	if len(piece) > short {
		return dst[:begin+v.mergeLong(dst[begin:], barred)]
	}
	ids := dst[begin:]
	for len(ids) > 1 {
		best, at := merge{}, -1
		for i := range len(ids) - 1 {
			if m, ok := v.pair(ids[i], ids[i+1], barred); ok && (at < 0 || m.rank < best.rank) {
				best, at = m, i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = best.id
		ids = append(ids[:at+1], ids[at+2:]...)
	}
	return dst[:begin+len(ids)]
}

func (v *vocabulary) pair(a, b int32, barred []bool) (merge, bool) {
	m, ok := v.merges[pairOf(a, b)]
	return m, ok && (barred == nil || !barred[m.id])
}

// candidate is a merge of the token at a place with the one after it, as they were when it was found.
type candidate struct {
	merge
	at          int32
	left, right int32
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// mergeLong merges ids in place and returns how many are left. Its time is n log n of the length.
func (v *vocabulary) mergeLong(ids []int32, barred []bool) int {
	n := int32(len(ids))
	before, after := make([]int32, n), make([]int32, n) // -1 and n are none; before is -2 where a token was merged away
	var queue candidates
	find := func(at int32) {
		if at < 0 || after[at] >= n {
			return
		}
		left, right := ids[at], ids[after[at]]
		if m, ok := v.pair(left, right, barred); ok {
			heap.Push(&queue, candidate{m, at, left, right})
		}
	}
	for i := range n {
		before[i], after[i] = i-1, i+1
	}
	for i := range n {
		find(i)
	}
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		gone := after[c.at]
		if before[c.at] == -2 || gone >= n || ids[c.at] != c.left || ids[gone] != c.right {
			continue // a merge before it took one of the two
		}
		ids[c.at] = c.id
		after[c.at] = after[gone]
		if next := after[gone]; next < n {
			before[next] = c.at
		}
		before[gone] = -2
		find(before[c.at])
		find(c.at)
	}
	left := 0
	for i := int32(0); i < n; i = after[i] {
		ids[left] = ids[i]
		left++
	}
	return left
}
