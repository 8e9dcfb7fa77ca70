// Package delta encodes one version of a file of numbers as its difference from another, without loss.
//
// At the learning rates of reinforcement learning most bfloat16 weights do not change between two versions, and
// those that do mostly move to the next representable value. So the numbers are compared as integers of their own
// width; the positions of those that differ are kept as gaps, and the differences as one plane a byte, lowest
// first. Both then hold few distinct bytes, and zstd's entropy coder does the rest. Where most numbers differ, the
// planes of all differences are kept instead and no positions.
//
// The result does not hold the base's identity or a checksum: callers name both by hash.
package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/zstd"
)

var (
	// ErrSize says that the two versions are not of the same size, or the width is not 2 or 4.
	ErrSize = errors.New("no delta between these")
	// ErrCorrupt says that the bytes are no delta, or not one against this base.
	ErrCorrupt = errors.New("corrupt delta")
)

// The layout: format, width, mode, uvarint size; sparse only: uvarint count, gaps; planes; tail. Gaps and planes
// are each a uvarint length and a zstd frame. The tail is the bytes after the last whole number, as they are.
const (
	format = 1
	sparse = 0
	dense  = 1
)

// Encode is next as its difference from base, both a whole file of numbers of width bytes (2 or 4). Bytes that
// are no such numbers, as a header, cost a little more and are kept just as well.
func Encode(base, next []byte, width int) ([]byte, error) {
	if len(base) != len(next) {
		return nil, fmt.Errorf("%w: %d and %d bytes", ErrSize, len(base), len(next))
	}
	if width != 2 && width != 4 {
		return nil, fmt.Errorf("%w: numbers of %d bytes", ErrSize, width)
	}
	// The faster levels give gaps up as incompressible.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	defer func() { _ = enc.Close() }() // nothing is buffered

	words := len(next) / width
	gaps, values := differences(base, next, width)
	mode := byte(sparse)
	if len(values) > words/2 {
		mode, gaps = dense, nil
		values = values[:0]
		for i := range words {
			values = append(values, difference(base, next, i, width))
		}
	}
	out := binary.AppendUvarint([]byte{format, byte(width), mode}, uint64(len(next)))
	if mode == sparse {
		out = binary.AppendUvarint(out, uint64(len(values)))
		out = section(out, enc, gaps)
	}
	plane := make([]byte, len(values))
	for b := range width {
		for i, v := range values {
			plane[i] = byte(v >> (8 * b))
		}
		out = section(out, enc, plane)
	}
	return append(out, next[words*width:]...), nil
}

func section(out []byte, enc *zstd.Encoder, data []byte) []byte {
	packed := enc.EncodeAll(data, nil)
	return append(binary.AppendUvarint(out, uint64(len(packed))), packed...)
}

// differences lists the numbers that differ: how many equal ones come before each, and by how much it moved.
func differences(base, next []byte, width int) (gaps []byte, values []uint32) {
	words, prev := len(next)/width, -1
	see := func(i int) {
		if d := difference(base, next, i, width); d != 0 {
			gaps = binary.AppendUvarint(gaps, uint64(i-prev-1))
			values = append(values, d)
			prev = i
		}
	}
	i := 0
	// Eight bytes at a time: most are equal.
	for per := 8 / width; i+per <= words; i += per {
		at := i * width
		if x := binary.LittleEndian.Uint64(base[at:]) ^ binary.LittleEndian.Uint64(next[at:]); x != 0 {
			for j := bits.TrailingZeros64(x) / (8 * width); j < per; j++ {
				see(i + j)
			}
		}
	}
	for ; i < words; i++ {
		see(i)
	}
	return gaps, values
}

// difference is how far number i moved, as an unsigned number that is small for a small move either way.
func difference(base, next []byte, i, width int) uint32 {
	if width == 2 {
		d := int16(binary.LittleEndian.Uint16(next[2*i:]) - binary.LittleEndian.Uint16(base[2*i:]))
		return uint32(uint16(d<<1) ^ uint16(d>>15))
	}
	d := int32(binary.LittleEndian.Uint32(next[4*i:]) - binary.LittleEndian.Uint32(base[4*i:]))
	return uint32(d<<1) ^ uint32(d>>31)
}

// move undoes difference: it moves number i of data by d.
func move(data []byte, i, width int, d uint32) {
	if width == 2 {
		back := uint16(d>>1) ^ -uint16(d&1)
		binary.LittleEndian.PutUint16(data[2*i:], binary.LittleEndian.Uint16(data[2*i:])+back)
		return
	}
	back := d>>1 ^ -(d & 1)
	binary.LittleEndian.PutUint32(data[4*i:], binary.LittleEndian.Uint32(data[4*i:])+back)
}

// Decode is what [Encode] was given as next, with the same base. It fails with [ErrCorrupt] on anything else that
// it can tell apart; memory taken is a small multiple of base, whatever the delta claims.
func Decode(base, encoded []byte) ([]byte, error) {
	r := &reader{in: encoded}
	head := r.take(3)
	size := r.uvarint(uint64(len(base)))
	if r.bad || head[0] != format || head[1] != 2 && head[1] != 4 || head[2] > dense || size != len(base) {
		return nil, fmt.Errorf("%w: header does not fit a base of %d bytes", ErrCorrupt, len(base))
	}
	width, mode := int(head[1]), head[2]
	words := size / width
	count := words
	// A gap takes at most five bytes; no zstd frame takes less than the other bound.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(5*words, 1<<20))))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	defer dec.Close()
	r.dec = dec

	var gaps []byte
	if mode == sparse {
		count = r.uvarint(uint64(words))
		gaps = r.section(5 * count)
	}
	values := make([]uint32, 0, count)
	for b := range width {
		plane := r.section(count)
		if len(plane) != count {
			r.bad = true
		}
		if r.bad {
			return nil, fmt.Errorf("%w: plane %d", ErrCorrupt, b)
		}
		values = values[:count]
		for i, v := range plane {
			values[i] |= uint32(v) << (8 * b)
		}
	}
	tail := r.take(size - words*width)
	if r.bad || len(r.in) > 0 {
		return nil, fmt.Errorf("%w: wrong length", ErrCorrupt)
	}

	next := slices.Clone(base)
	copy(next[words*width:], tail)
	if mode == dense {
		for i, d := range values {
			move(next, i, width, d)
		}
		return next, nil
	}
	at := &reader{in: gaps}
	for i, n := -1, 0; n < count; n++ {
		i += 1 + at.uvarint(uint64(words))
		if at.bad || i >= words {
			return nil, fmt.Errorf("%w: position %d", ErrCorrupt, n)
		}
		move(next, i, width, values[n])
	}
	if len(at.in) > 0 {
		return nil, fmt.Errorf("%w: positions left over", ErrCorrupt)
	}
	return next, nil
}

// reader takes the parts of a delta; bad is set for good when one is not there.
type reader struct {
	in  []byte
	dec *zstd.Decoder
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.in) {
		r.bad = true
		return make([]byte, 3) // enough for the header, the only part that is looked at unasked
	}
	part := r.in[:n]
	r.in = r.in[n:]
	return part
}

func (r *reader) uvarint(most uint64) int {
	v, n := binary.Uvarint(r.in)
	if r.bad || n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.in = r.in[n:]
	return int(v)
}

// section unpacks a frame of at most most bytes.
func (r *reader) section(most int) []byte {
	packed := r.take(r.uvarint(uint64(len(r.in))))
	if r.bad {
		return nil
	}
	data, err := r.dec.DecodeAll(packed, nil)
	if err != nil || len(data) > most {
		r.bad = true
		return nil
	}
	return data
}
