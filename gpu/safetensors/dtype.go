package safetensors

import (
	"encoding/binary"
	"math"
)

// DType is how numbers are stored, in the format's own names.
type DType string

const (
	// F32 keeps every bit.
	F32 DType = "F32"
	// BF16 keeps the upper half of a float32, rounded to nearest, ties to even.
	BF16 DType = "BF16"
)

// size of one number in bytes, 0 for a type that is not supported.
func (d DType) size() int {
	switch d {
	case F32:
		return 4
	case BF16:
		return 2
	}
	return 0
}

// append adds the numbers to b.
func (d DType) append(b []byte, x []float32) []byte {
	if d == BF16 {
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, toBF16(v))
		}
		return b
	}
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// decode reads all of b into x.
func (d DType) decode(x []float32, b []byte) {
	if d == BF16 {
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		}
		return
	}
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}

// toBF16 rounds to nearest, ties to even; NaN stays NaN and keeps its sign.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// RoundBF16 is the value that a float32 has after being stored as BF16.
func RoundBF16(v float32) float32 { return math.Float32frombits(uint32(toBF16(v)) << 16) }
