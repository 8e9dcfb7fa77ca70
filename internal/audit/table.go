package audit

import (
	"iter"
	"maps"
	"slices"
)

// table holds a number for each key, 0 unless another was put: four bytes for each where the keys lie close together. The
// zero value is ready to use.
type table struct {
	pages map[uint64]*page
}

// page holds the numbers of neighbouring keys.
type page [64]uint32

func (t *table) numberAt(key uint64) uint32 {
	if p := t.pages[key/uint64(len(page{}))]; p != nil {
		return p[key%uint64(len(p))]
	}
	return 0
}

func (t *table) putNumber(key uint64, n uint32) {
	number := key / uint64(len(page{}))
	p := t.pages[number]
	if p == nil {
		p = &page{}
		if t.pages == nil {
			t.pages = map[uint64]*page{}
		}
		t.pages[number] = p
	}
	p[key%uint64(len(p))] = n
}

// zeroRanges are the longest ranges of keys below an end whose number is 0, in order: each from its first key up to, and without,
// its second. A range that no page is of costs nothing.
func (t *table) zeroRanges(end uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		from := uint64(0)
		for _, number := range slices.Sorted(maps.Keys(t.pages)) {
			for i, n := range t.pages[number] {
				key := number*uint64(len(page{})) + uint64(i)
				switch {
				case n == 0:
				case key >= end:
					if from < end {
						yield(from, end)
					}
					return
				case from < key && !yield(from, key):
					return
				default:
					from = key + 1
				}
			}
		}
		if from < end {
			yield(from, end)
		}
	}
}
