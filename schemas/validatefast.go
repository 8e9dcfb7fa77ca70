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
		if m == 1 && !(sampled(logprobs) && known(versions)) {
			return false
		}
		if m == 0 && !(zero(logprobs) && versions[0] == NoVersion && runEnd(versions, 0) == len(versions)) {
			return false
		}
		at = end
	}
	return true
}

// signs is the sign bits of two values of four bytes.
const signs = 1<<63 | 1<<31

// sampled is whether each value is finite and at most logprobSlack.
func sampled(logprobs []float32) bool {
	const lot = 64
	for ; len(logprobs) >= lot; logprobs = logprobs[lot:] {
		if !below(logprobs[:lot]) && !each(logprobs[:lot]) {
			return false
		}
	}
	return each(logprobs)
}

// each is sampled, value by value.
func each(logprobs []float32) bool {
	for _, lp := range logprobs {
		// Written so that NaN fails too.
		if !(lp <= logprobSlack && lp >= -math.MaxFloat32) {
			return false
		}
	}
	return true
}

// below is whether each value of b, whose length is a multiple of eight bytes, is negative and finite: its sign bit is set, and is
// still set after 1 is added to the exponent, which overflows into the sign where all bits of the exponent are set.
func below(logprobs []float32) bool {
	const one = 1<<55 | 1<<23
	all := uint64(signs)
	for b := memory(logprobs); len(b) >= 32; b = b[32:] {
		v, w := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
		x, y := binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])
		all &= v & (v + one) & w & (w + one) & x & (x + one) & y & (y + one)
	}
	return all == signs
}

// zero is whether each value is 0, of either sign.
func zero(logprobs []float32) bool { return either(memory(logprobs))&^signs == 0 }

// negative is whether a value has its sign bit set.
func negative(v []int32) bool { return either(memory(v))&signs != 0 }

// known is whether each value is a policy version.
func known(versions []int32) bool {
	for at := 0; at < len(versions); at = runEnd(versions, at) {
		if versions[at] < 0 {
			return false
		}
	}
	return true
}

// either is the bits that are set in any of the four-byte values of b, the bits at even places in the first half and the others in the
// second.
func either(b []byte) uint64 {
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
