package stats

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Scan writes y_t = x_t + decay y_{t+1} from the last entry to the first, where follows is the y after the last entry, and returns the
// first y and the moments of all. out may be x.
func Scan(x []float64, decay, follows float64, out []float64) (y float64, m Moments) {
	y = follows
	for hi := len(x); hi > 0; {
		lo := max(0, hi-chunk)
		var part Moments
		y, part = scanChunk(x[lo:hi], decay, y, out[lo:hi])
		m, hi = m.Merge(part), lo
	}
	return y, m
}

// scanChunk is Scan of a chunk that is not empty. Four entries go at a time, so that a processor need not wait for each before it begins
// the next.
func scanChunk(x []float64, decay, y float64, out []float64) (float64, Moments) {
	n := len(x)
	pivot := x[n-1] + decay*y
	var sum, squares float64
	d2 := decay * decay
	d3, d4 := d2*decay, d2*d2
	for ; n >= 4; n -= 4 {
		from, to := x[n-4:n:n], out[n-4:n:n]
		a, b, c, d := from[0], from[1], from[2], from[3]
		cd := c + decay*d
		bcd := b + decay*cd
		abcd := a + decay*bcd
		d, c, b = d+decay*y, cd+d2*y, bcd+d3*y
		y = abcd + d4*y
		to[0], to[1], to[2], to[3] = y, b, c, d
		a, b, c, d = y-pivot, b-pivot, c-pivot, d-pivot
		sum, squares = sum+((a+b)+(c+d)), squares+((a*a+b*b)+(c*c+d*d))
	}
	for t, v := range slices.Backward(x[:n]) {
		y = v + decay*y
		out[t] = y
		sum, squares = sum+(y-pivot), squares+(y-pivot)*(y-pivot)
	}
	return y, momentsAbout(pivot, len(x), sum, squares)
}

// LastRun is where the last run of equal entries of a mask begins, and whether it is of ones. mask is not empty.
func LastRun(mask []uint8) (start int, ones bool) {
	n := len(mask)
	last := mask[n-1]
	for same := uint64(last) * everyByte; n >= 8; n -= 8 {
		if differs := binary.LittleEndian.Uint64(mask[n-8:n]) ^ same; differs != 0 {
			return n - bits.LeadingZeros64(differs)/8, last == 1
		}
	}
	for n > 0 && mask[n-1] == last {
		n--
	}
	return n, last == 1
}

// FirstRun is where the first run of equal entries of a mask ends, and whether it is of ones. mask is not empty.
func FirstRun(mask []uint8) (end int, ones bool) {
	end = bytes.IndexByte(mask, 1-mask[0])
	if end < 0 {
		end = len(mask)
	}
	return end, mask[0] == 1
}

// Set writes v everywhere: to a block, which is then copied on, because a long copy does not read the memory that it overwrites.
func Set(x []float64, v float64) {
	if v == 0 {
		clear(x)
		return
	}
	const block = 64
	for t := range x[:min(block, len(x))] {
		x[t] = v
	}
	for n := block; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}
