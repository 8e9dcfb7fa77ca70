package schemas

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unsafe"
)

// nativeLittle is whether this machine holds values in memory as they are on the wire.
func nativeLittle() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// word is a value of four bytes that is packed as it lies in memory.
type word interface{ ~int32 | ~float32 }

// viewAsBytes is the bytes of v in place.
func viewAsBytes[T word](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// block is the number of bytes that are copied at once. Arrays in a message are seldom aligned, and the runtime copies 2 KB or more of
// unaligned memory byte by byte, at half the speed.
const block = 1 << 10

// moveBytes copies src to dst, which is as long and does not overlap src.
func moveBytes(dst, src []byte) {
	for len(src) > block {
		copy(dst[:block], src[:block])
		dst, src = dst[block:], src[block:]
	}
	copy(dst, src)
}

// appendBytes appends v to b.
func appendBytes(b, v []byte) []byte {
	n := len(b)
	b = slices.Grow(b, len(v))[:n+len(v)]
	moveBytes(b[n:], v)
	return b
}

// appendWords appends v packed little-endian, without a header.
func appendWords[T word](b []byte, v []T, little bool) []byte {
	if little {
		return appendBytes(b, viewAsBytes(v))
	}
	for i := range v {
		b = binary.LittleEndian.AppendUint32(b, *(*uint32)(unsafe.Pointer(&v[i])))
	}
	return b
}

// readWords unpacks raw, whose length is a multiple of 4, into dst's memory where that is large enough.
func readWords[T word](dst []T, raw []byte, little bool) []T {
	n := len(raw) / 4
	dst = slices.Grow(dst[:0], n)[:n]
	if little {
		moveBytes(viewAsBytes(dst), raw)
		return dst
	}
	for i := range dst {
		*(*uint32)(unsafe.Pointer(&dst[i])) = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return dst
}

// appendRuns appends v as (length, value) pairs, without a header.
func appendRuns(b []byte, v []int32) []byte {
	for i := 0; i < len(v); {
		end := findRunEnd(v, i)
		b = binary.LittleEndian.AppendUint32(b, uint32(end-i))
		b = binary.LittleEndian.AppendUint32(b, uint32(v[i]))
		i = end
	}
	return b
}

// findRunEnd is the end of the run of equal values that begins at i. Values that equal themselves moved by a single value are all equal, and
// comparing memory is far faster than comparing values.
func findRunEnd(v []int32, i int) int {
	const near = 16
	x, j := v[i], i+1
	for ; j < len(v) && j < i+near; j++ {
		if v[j] != x {
			return j
		}
	}
	for _, n := range [...]int{256, 32} {
		for j+n <= len(v) && bytes.Equal(viewAsBytes(v[j-1:j-1+n]), viewAsBytes(v[j:j+n])) {
			j += n
		}
	}
	for j < len(v) && v[j] == x {
		j++
	}
	return j
}

// readRuns unpacks (length, value) pairs into dst's memory where that is large enough. The lengths must add up
// to want exactly, so that a few bytes never ask for much memory.
func readRuns(dst []int32, raw []byte, want int) ([]int32, string) {
	if len(raw)%8 != 0 {
		return dst[:0], "not a whole number of runs"
	}
	total := 0
	for i := 0; i < len(raw); i += 8 {
		n := int32(binary.LittleEndian.Uint32(raw[i:]))
		if n <= 0 {
			return dst[:0], "a run of no values"
		}
		if total += int(n); total > want {
			break
		}
	}
	if total != want {
		return dst[:0], "runs do not add up to the number of tokens"
	}
	dst = slices.Grow(dst[:0], want)[:want]
	at := 0
	for i := 0; i < len(raw); i += 8 {
		n := int(binary.LittleEndian.Uint32(raw[i:]))
		fillValues(dst[at:at+n], int32(binary.LittleEndian.Uint32(raw[i+4:])))
		at += n
	}
	return dst, ""
}

// fillValues sets every value of dst: a few values singly, the others by copies of doubling length.
func fillValues(dst []int32, v int32) {
	const most = block / 4
	first := min(len(dst), 16)
	for i := range dst[:first] {
		dst[i] = v
	}
	for n := first; n < len(dst); n += min(n, most) {
		copy(dst[n:], dst[:min(n, most)])
	}
}
