// Package delta encodes a version of a file of numbers as its difference from another, without loss.
//
// At the learning rates of reinforcement learning most bfloat16 weights do not change between two versions, and
// the numbers that do mostly move to the next representable value. So the numbers are compared as integers of their own
// width; the positions of the numbers that differ are kept as gaps, and the differences as a plane for each byte, lowest
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
	// ErrSize is returned when the two versions are not of the same size, or the width is not 2 or 4.
	ErrSize = errors.New("no delta between these")
	// ErrCorrupt is returned when the bytes are no delta, or no delta against this base.
	ErrCorrupt = errors.New("corrupt delta")
)

// The layout of format 1: format, width, mode, uvarint size; sparse only: uvarint count, gaps; planes; tail. Gaps and
// planes are each a uvarint length and a zstd frame. The tail is the bytes after the last whole number, as they are.
// Of format 2, for files of more than a block: format, width, uvarint size, uvarint size of a block; then of each block
// a uvarint length and its delta of format 1.
const (
	format   = 1
	inBlocks = 2
	sparse   = 0
	dense    = 1
)

// encoder encodes whole deltas in turn, in the same room.
type encoder struct {
	zstd   *zstd.Encoder
	gaps   []byte
	values []uint32
	plane  []byte
}

func newEncoder() (*encoder, error) {
	// The faster levels give gaps up as incompressible.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	return &encoder{zstd: enc}, nil
}

func (e *encoder) closeEncoder() { _ = e.zstd.Close() } // nothing is buffered

// encodeBlock appends a delta of format 1.
func (e *encoder) encodeBlock(out, base, next []byte, width int) []byte {
	words := len(next) / width
	e.listDifferences(base, next, width)
	mode := byte(sparse)
	if len(e.values) > words/2 {
		mode = dense
		e.values = e.values[:0]
		for i := range words {
			e.values = append(e.values, numberDifference(base, next, i, width))
		}
	}
	out = binary.AppendUvarint(append(out, format, byte(width), mode), uint64(len(next)))
	if mode == sparse {
		out = binary.AppendUvarint(out, uint64(len(e.values)))
		out = appendSection(out, e.zstd, e.gaps)
	}
	e.plane = slices.Grow(e.plane[:0], len(e.values))[:len(e.values)]
	for b := range width {
		for i, v := range e.values {
			e.plane[i] = byte(v >> (8 * b))
		}
		out = appendSection(out, e.zstd, e.plane)
	}
	return append(out, next[words*width:]...)
}

func appendSection(out []byte, enc *zstd.Encoder, data []byte) []byte {
	packed := enc.EncodeAll(data, nil)
	return append(binary.AppendUvarint(out, uint64(len(packed))), packed...)
}

// listDifferences lists the numbers that differ: how many equal ones come before each, and by how much it moved.
func (e *encoder) listDifferences(base, next []byte, width int) {
	words, prev := len(next)/width, -1
	e.gaps, e.values = e.gaps[:0], e.values[:0]
	see := func(i int) {
		if d := numberDifference(base, next, i, width); d != 0 {
			e.gaps = binary.AppendUvarint(e.gaps, uint64(i-prev-1))
			e.values = append(e.values, d)
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
}

// numberDifference is how far number i moved, as an unsigned number that is small for a small move either way.
func numberDifference(base, next []byte, i, width int) uint32 {
	if width == 2 {
		d := int16(binary.LittleEndian.Uint16(next[2*i:]) - binary.LittleEndian.Uint16(base[2*i:]))
		return uint32(uint16(d<<1) ^ uint16(d>>15))
	}
	d := int32(binary.LittleEndian.Uint32(next[4*i:]) - binary.LittleEndian.Uint32(base[4*i:]))
	return uint32(d<<1) ^ uint32(d>>31)
}

// moveNumber undoes difference: it moves number i of data by d.
func moveNumber(data []byte, i, width int, d uint32) {
	if width == 2 {
		back := uint16(d>>1) ^ -uint16(d&1)
		binary.LittleEndian.PutUint16(data[2*i:], binary.LittleEndian.Uint16(data[2*i:])+back)
		return
	}
	back := d>>1 ^ -(d & 1)
	binary.LittleEndian.PutUint32(data[4*i:], binary.LittleEndian.Uint32(data[4*i:])+back)
}

// newDecoder unpacks deltas of up to size bytes.
func newDecoder(size int) (*zstd.Decoder, error) {
	// A gap takes at most five bytes a number; no zstd frame takes less than the other bound.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(5*size/2, 1<<20))))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	return dec, nil
}

// decodeBlock undoes encode. It writes to base, which it returns.
func decodeBlock(dec *zstd.Decoder, base, encoded []byte) ([]byte, error) {
	r := &reader{in: encoded, dec: dec}
	head := r.takeBytes(3)
	size := r.readUvarint(uint64(len(base)))
	if r.bad || head[0] != format || head[1] != 2 && head[1] != 4 || head[2] > dense || size != len(base) {
		return nil, fmt.Errorf("%w: header does not fit a base of %d bytes", ErrCorrupt, len(base))
	}
	width, mode := int(head[1]), head[2]
	words := size / width
	count := words

	var gaps []byte
	if mode == sparse {
		count = r.readUvarint(uint64(words))
		gaps = r.readSection(5 * count)
	}
	values := make([]uint32, 0, count)
	for b := range width {
		plane := r.readSection(count)
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
	tail := r.takeBytes(size - words*width)
	if r.bad || len(r.in) > 0 {
		return nil, fmt.Errorf("%w: wrong length", ErrCorrupt)
	}

	next := base
	copy(next[words*width:], tail)
	if mode == dense {
		for i, d := range values {
			moveNumber(next, i, width, d)
		}
		return next, nil
	}
	at := &reader{in: gaps}
	for i, n := -1, 0; n < count; n++ {
		i += 1 + at.readUvarint(uint64(words))
		if at.bad || i >= words {
			return nil, fmt.Errorf("%w: position %d", ErrCorrupt, n)
		}
		moveNumber(next, i, width, values[n])
	}
	if len(at.in) > 0 {
		return nil, fmt.Errorf("%w: positions left over", ErrCorrupt)
	}
	return next, nil
}

// reader takes the parts of a delta; bad is set for good when a part is not there.
type reader struct {
	in  []byte
	dec *zstd.Decoder
	bad bool
}

func (r *reader) takeBytes(n int) []byte {
	if r.bad || n > len(r.in) {
		r.bad = true
		return make([]byte, 3) // enough for the header, the only part that is looked at unasked
	}
	part := r.in[:n]
	r.in = r.in[n:]
	return part
}

func (r *reader) readUvarint(most uint64) int {
	v, n := binary.Uvarint(r.in)
	if r.bad || n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.in = r.in[n:]
	return int(v)
}

// readSection unpacks a frame of at most most bytes.
func (r *reader) readSection(most int) []byte {
	packed := r.takeBytes(r.readUvarint(uint64(len(r.in))))
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
