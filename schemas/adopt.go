package schemas

import (
	"slices"
	"unsafe"
)

// Adopt is [Unmarshal] into a fresh message without the copies: the arrays of v lie in data, which belongs to v from then on and lives
// as long as v. Arrays of words are moved within data by up to three bytes, to an address that words may have; undo moves them
// back, and v is then undefined. Where Adopt fails, data is as it was.
func Adopt(data []byte, v any) (undo func(), err error) {
	c := coder{adopt: true}
	err = c.decodeMessage(data, v)
	undo = func() { restoreArrays(data, c.moved) }
	if err != nil {
		undo()
	}
	return undo, err
}

// moved is an array that was moved some bytes towards the front of the input.
type moved struct {
	at, size int // in the input as it came
	by       int
	over     [3]byte // the bytes that the moved array begins over
}

// alignArray moves raw, which was just taken from the input, to the nearest lower address that words may have. Before raw are its header
// and its key, at least three bytes that have been read.
func (c *coder) alignArray(raw []byte) []byte {
	by := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % unsafe.Alignof(int32(0)))
	if by == 0 || len(raw) == 0 {
		return raw
	}
	m := moved{at: c.in.at - len(raw), size: len(raw), by: by}
	to := c.in.b[m.at-by : m.at-by+m.size]
	copy(m.over[:], to[:by])
	copy(to, raw)
	c.moved = append(c.moved, m)
	return to
}

// restoreArrays moves the arrays back, the array that was moved last first.
func restoreArrays(data []byte, all []moved) {
	for _, m := range slices.Backward(all) {
		copy(data[m.at:m.at+m.size], data[m.at-m.by:])
		copy(data[m.at-m.by:m.at], m.over[:])
	}
}

// viewAsWords is raw, whose address words may have, as words. They have no room to grow: other fields follow in the input.
func viewAsWords[T word](raw []byte) []T {
	if len(raw) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), len(raw)/4)
}
