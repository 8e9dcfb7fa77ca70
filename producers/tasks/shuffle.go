package tasks

// Shuffled is the i-th of an endless order of the numbers below n in which every epoch, n in a row, has each of them once, in
// an order of its own that the seed chooses. It needs no memory.
func Shuffled(i, n, seed uint64) uint64 { return permuteIndex(i%n, n, Spread(seed+i/n)) }

// permuteIndex returns the image of i under a permutation of 0..n-1 that key chooses: a Feistel network over the next power of four, walked
// until it lands below n. It needs no memory, so any index of any epoch costs the same.
func permuteIndex(i, n, key uint64) uint64 {
	half := uint(1)
	for uint64(1)<<(2*half) < n {
		half++
	}
	low := uint64(1)<<half - 1
	for {
		left, right := i>>half, i&low
		for round := range uint64(4) {
			left, right = right, left^(Spread(right^key+round)&low)
		}
		if i = left<<half | right; i < n {
			return i
		}
	}
}
