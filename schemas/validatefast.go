package schemas

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Every trajectory is checked twice on its way, and nearly every trajectory is sound. So the first check does not go token by token:
// it compares memory, and reads eight bytes at a time.

// checkConsistent is whether mask, log-probabilities and versions, which are equally long, agree at every token. It goes from a run of
// equal mask values to the next.
func (s *Segment) checkConsistent() bool {
	for at := 0; at < len(s.ActionMask); {
		m, end := s.ActionMask[at], len(s.ActionMask)
		if m > 1 {
			return false
		}
		if n := bytes.IndexByte(s.ActionMask[at:], 1-m); n >= 0 {
			end = at + n
		}
		// Before the end there may be values that are neither 0 nor 1.
		if bytes.Count(s.ActionMask[at:end], []byte{m}) != end-at {
			return false
		}
		logprobs, versions := s.Logprobs[at:end], s.Versions[at:end]
		if m == 1 && !(areAllSampled(logprobs) && areAllKnown(versions)) {
			return false
		}
		if m == 0 && !(areAllZero(logprobs) && versions[0] == NoVersion && findRunEnd(versions, 0) == len(versions)) {
			return false
		}
		at = end
	}
	return true
}

// signs is the sign bits of two values of four bytes.
const signs = 1<<63 | 1<<31

// areAllSampled is whether each value is finite and at most logprobSlack.
func areAllSampled(logprobs []float32) bool {
	const lot = 64
	for ; len(logprobs) >= lot; logprobs = logprobs[lot:] {
		if !areBelowZero(logprobs[:lot]) && !areSampledSingly(logprobs[:lot]) {
			return false
		}
	}
	return areSampledSingly(logprobs)
}

// areSampledSingly is sampled, value by value.
func areSampledSingly(logprobs []float32) bool {
	for _, lp := range logprobs {
		// Written so that NaN fails too.
		if !(lp <= logprobSlack && lp >= -math.MaxFloat32) {
			return false
		}
	}
	return true
}

// areBelowZero is whether each value of b, whose length is a multiple of eight bytes, is negative and finite: its sign bit is set, and is
// still set after 1 is added to the exponent, which overflows into the sign where all bits of the exponent are set.
func areBelowZero(logprobs []float32) bool {
	const one = 1<<55 | 1<<23
	all := uint64(signs)
	for b := viewAsBytes(logprobs); len(b) >= 32; b = b[32:] {
		v, w := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
		x, y := binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])
		all &= v & (v + one) & w & (w + one) & x & (x + one) & y & (y + one)
	}
	return all == signs
}

// areAllZero is whether each value is 0, of either sign.
func areAllZero(logprobs []float32) bool { return combineBits(viewAsBytes(logprobs))&^signs == 0 }

// hasNegative is whether a value has its sign bit set.
func hasNegative(v []int32) bool { return combineBits(viewAsBytes(v))&signs != 0 }

// areAllKnown is whether each value is a policy version.
func areAllKnown(versions []int32) bool {
	for at := 0; at < len(versions); at = findRunEnd(versions, at) {
		if versions[at] < 0 {
			return false
		}
	}
	return true
}

// combineBits is the bits that are set in any of the four-byte values of b, the bits at even places in the first half and the others in the
// second.
func combineBits(b []byte) uint64 {
	bits := uint64(0)
	for ; len(b) >= 32; b = b[32:] {
		bits |= binary.NativeEndian.Uint64(b) | binary.NativeEndian.Uint64(b[8:]) |
			binary.NativeEndian.Uint64(b[16:]) | binary.NativeEndian.Uint64(b[24:])
	}
	for ; len(b) >= 4; b = b[4:] {
		bits |= uint64(binary.NativeEndian.Uint32(b))
	}
	return bits
}
