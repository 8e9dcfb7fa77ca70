package bpe

import (
	"math"
	"math/bits"
	"slices"
)

// merge makes a token of two tokens. The lowest rank goes first.
type merge struct{ rank, id int32 }

// unranked is the rank of two tokens that do not merge.
const unranked = math.MaxInt32

// merges are found by the two tokens, in a table with open addressing: a key is where its hash points, or at the next free place.
type merges struct {
	places []entry
	shift  uint // the hash's upper bits are the place
	// ofBytes are the merges of two bytes' tokens: every piece begins with these.
	ofBytes []merge
}

type entry struct {
	key uint64
	merge
}

// free is no pair of tokens: ids are not negative.
const free = math.MaxUint64

func pairOf(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func newMerges(of map[uint64]merge, single *[256]int32) *merges {
	width := uint(bits.Len(uint(len(of) + len(of)/2 + 1)))
	m := &merges{places: make([]entry, 1<<width), shift: 64 - width}
	for i := range m.places {
		m.places[i] = entry{free, merge{rank: unranked}}
	}
	for key, value := range of {
		*m.findPlace(key) = entry{key, value}
	}
	if single == nil { // pieces are characters
		return m
	}
	m.ofBytes = make([]merge, 1<<16)
	for i := range m.ofBytes {
		// Of a byte without a token there is no merge: no key has an id below 0.
		m.ofBytes[i] = m.mergeOf(single[i>>8], single[i&0xff])
	}
	return m
}

// findPlace is where a key is, or belongs. Some place is always free.
func (m *merges) findPlace(key uint64) *entry {
	at := key * 0x9e3779b97f4a7c15 >> m.shift
	for m.places[at].key != key && m.places[at].key != free {
		at = (at + 1) & uint64(len(m.places)-1)
	}
	return &m.places[at]
}

// mergeOf is the merge of two tokens.
func (m *merges) mergeOf(a, b int32) merge { return m.findPlace(pairOf(a, b)).merge }

// shortPiece is the length in bytes up to which a list is searched for the lowest rank. A longer piece has a heap.
const shortPiece = 128

// encodePiece appends the tokens of a piece, which is not empty: the tokens of its bytes, merged in the order of rank, leftmost
// first. barred are tokens that may not be made; nil bars none.
func (v *vocabulary) encodePiece(dst []int32, piece string, barred []bool) []int32 {
	if v.symbols != nil {
		return v.encodeCharacters(dst, piece, barred)
	}
	if v.lacking {
		if piece = v.withoutAbsent(piece); piece == "" {
			return dst
		}
	}
	if len(piece) > shortPiece {
		return v.encodeLong(dst, piece, barred)
	}
	begin := len(dst)
	var room [shortPiece]merge
	next := room[:len(piece)] // the merge of a token with the next
	for i := range len(piece) - 1 {
		dst = append(dst, v.single[piece[i]])
		next[i] = v.merges.ofBytes[int(piece[i])<<8|int(piece[i+1])].unlessBarred(barred)
	}
	dst = append(dst, v.single[piece[len(piece)-1]])
	next[len(piece)-1].rank = unranked
	return dst[:begin+v.mergeShort(dst[begin:], next, barred)]
}

// mergeShort merges ids in their place and returns how many are left. next are the merges of each token with the next, of which the
// last is unranked.
func (v *vocabulary) mergeShort(ids []int32, next []merge, barred []bool) int {
	for {
		at, least := 0, int32(unranked)
		for i := range next {
			if next[i].rank < least {
				at, least = i, next[i].rank
			}
		}
		if least == unranked {
			return len(ids)
		}
		ids[at] = next[at].id
		copy(ids[at+1:], ids[at+2:])
		copy(next[at:], next[at+1:])
		ids, next = ids[:len(ids)-1], next[:len(next)-1]
		if at > 0 {
			next[at-1] = v.merges.mergeOf(ids[at-1], ids[at]).unlessBarred(barred)
		}
		if at+1 < len(ids) {
			next[at] = v.merges.mergeOf(ids[at], ids[at+1]).unlessBarred(barred)
		}
	}
}

// unlessBarred is the merge, or none where it makes a barred token.
func (m merge) unlessBarred(barred []bool) merge {
	if barred != nil && m.rank != unranked && barred[m.id] {
		m.rank = unranked
	}
	return m
}

// candidate is a merge of the token at a place with the next token, as both were when it was found.
type candidate struct {
	merge
	at          int32
	left, right int32
}

func (c *candidate) isBefore(d *candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// heap holds candidates, the next candidate first.
type heap []candidate

func (h *heap) pushCandidate(c candidate) {
	*h = append(*h, c)
	list := *h
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !list[i].isBefore(&list[parent]) {
			break
		}
		list[i], list[parent] = list[parent], list[i]
		i = parent
	}
}

func (h *heap) popCandidate() candidate {
	list := *h
	first := list[0]
	list[0] = list[len(list)-1]
	list = list[:len(list)-1]
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(list) {
			break
		}
		if child+1 < len(list) && list[child+1].isBefore(&list[child]) {
			child++
		}
		if !list[child].isBefore(&list[i]) {
			break
		}
		list[i], list[child] = list[child], list[i]
		i = child
	}
	*h = list
	return first
}

// encodeLong is encodePiece in time n log n of the length.
func (v *vocabulary) encodeLong(dst []int32, piece string, barred []bool) []int32 {
	ids := make([]int32, len(piece))
	for i := range ids {
		ids[i] = v.single[piece[i]]
	}
	return v.mergeLong(dst, ids, barred)
}

// mergeLong merges ids, which it changes, and appends the rest of them.
func (v *vocabulary) mergeLong(dst, ids []int32, barred []bool) []int32 {
	n := int32(len(ids))
	before, after := make([]int32, n), make([]int32, n) // -1 and n are none; before is merged where a token was merged away
	const merged = -2
	var queue heap
	find := func(at int32) {
		if at < 0 || after[at] >= n {
			return
		}
		left, right := ids[at], ids[after[at]]
		if m := v.merges.mergeOf(left, right).unlessBarred(barred); m.rank != unranked {
			queue.pushCandidate(candidate{m, at, left, right})
		}
	}
	for i := range n {
		before[i], after[i] = i-1, i+1
	}
	for i := range n {
		find(i)
	}
	for len(queue) > 0 {
		c := queue.popCandidate()
		gone := after[c.at]
		if before[c.at] == merged || gone >= n || ids[c.at] != c.left || ids[gone] != c.right {
			continue // a merge before it took one of its two tokens
		}
		ids[c.at], after[c.at] = c.id, after[gone]
		if next := after[gone]; next < n {
			before[next] = c.at
		}
		before[gone] = merged
		find(before[c.at])
		find(c.at)
	}
	dst = slices.Grow(dst, len(ids)/bytesPerToken)
	for i := int32(0); i < n; i = after[i] {
		dst = append(dst, ids[i])
	}
	return dst
}
