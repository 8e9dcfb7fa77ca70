package stats

import "bytes"

// Scan writes y_t = x_t + decay y_{t+1} from the last entry to the first, where y of what follows is given, and
// returns the first y. out may be x. Four entries go at a time, so that a processor need not wait for each before
// it begins the next.
func Scan(x []float64, decay, follows float64, out []float64) float64 {
	y := follows
	d2 := decay * decay
	d3, d4 := d2*decay, d2*d2
	n := len(x)
	out = out[:n]
	for n >= 4 {
		a, b, c, d := x[n-4], x[n-3], x[n-2], x[n-1]
		cd := c + decay*d
		bcd := b + decay*cd
		abcd := a + decay*bcd
		out[n-1], out[n-2] = d+decay*y, cd+d2*y
		out[n-3] = bcd + d3*y
		y = abcd + d4*y
		out[n-4] = y
		n -= 4
	}
	for n > 0 {
		n--
		y = x[n] + decay*y
		out[n] = y
	}
	return y
}

// LastRun is where the last run of equal entries of a mask begins, and whether it is of ones. mask is not empty.
func LastRun(mask []uint8) (start int, ones bool) {
	last := mask[len(mask)-1]
	return bytes.LastIndexByte(mask, 1-last) + 1, last == 1
}

// FirstRun is where the first run of equal entries of a mask ends, and whether it is of ones. mask is not empty.
func FirstRun(mask []uint8) (end int, ones bool) {
	end = bytes.IndexByte(mask, 1-mask[0])
	if end < 0 {
		end = len(mask)
	}
	return end, mask[0] == 1
}

// Set writes v everywhere.
func Set(x []float64, v float64) {
	if v == 0 {
		clear(x)
		return
	}
	for t := range x {
		x[t] = v
	}
}
