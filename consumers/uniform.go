package consumers

// uniform is the random number in [0, 1) that draws the token at a position of a context: a counter hash, so
// that no state is carried between tokens, calls or consumers. The mixer is SplitMix64's (Steele, Lea and Flood 2014).
func uniform(seed uint64, position int) float64 {
	h := mix(mix(seed^0x5851f42d4c957f2d) + uint64(position)*0x9e3779b97f4a7c15)
	return float64(h>>11) * 0x1p-53
}

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
