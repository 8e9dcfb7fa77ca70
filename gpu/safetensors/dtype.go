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
	// F16 is IEEE 754's half precision, rounded to nearest, ties to even; a number above 65504 becomes infinite.
	F16 DType = "F16"
)

// known names the types that are read and written, for refusals.
const known = "F32, BF16 or F16"

// elementSize is the size of a number in bytes, 0 for a type that is not supported.
func (d DType) elementSize() int {
	switch d {
	case F32:
		return 4
	case BF16, F16:
		return 2
	}
	return 0
}

// appendNumbers adds the numbers to b.
func (d DType) appendNumbers(b []byte, x []float32) []byte {
	switch d {
	case BF16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, toBF16(v))
		}
	case F16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, toF16(v))
		}
	default:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// decodeNumbers reads all of b into x.
func (d DType) decodeNumbers(x []float32, b []byte) {
	switch d {
	case BF16:
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		}
	case F16:
		for i := range x {
			x[i] = fromF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	default:
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
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

// fromF16 is exact.
func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent, fraction := uint32(h>>10)&0x1f, uint32(h&0x3ff)
	switch exponent {
	case 0: // zero, or a number below 2^-14 in steps of 2^-24
		small := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(small))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// RoundF16 is the value that a float32 has after being stored as F16: an infinity from 65520 on.
func RoundF16(v float32) float32 { return fromF16(toF16(v)) }

// toF16 rounds to nearest, ties to even; NaN stays NaN and keeps its sign.
func toF16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, magnitude := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case magnitude > 0x7f800000:
		return sign | 0x7e00 | uint16(magnitude>>13)&0x3ff
	case magnitude >= 0x477ff000: // halfway from 65504 to the next step
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2^-14: the sum has steps of 2^-24 and rounds so
		shifted := math.Float32frombits(magnitude) + 0.5
		return sign | uint16(math.Float32bits(shifted)-math.Float32bits(0.5))
	}
	rounded := magnitude - 112<<23 + 0xfff + magnitude>>13&1
	return sign | uint16(rounded>>13)
}

// Round is a number as it is when it was stored in the type and read again.
func (d DType) Round(v float32) float32 {
	switch d {
	case BF16:
		return RoundBF16(v)
	case F16:
		return RoundF16(v)
	}
	return v
}
