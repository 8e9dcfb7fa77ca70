package schemas

// SeedStep is 2^64 divided by the golden ratio: seeds that lie multiples of it apart are as far from each other as they can
// be.
const SeedStep uint64 = 0x9e3779b97f4a7c15

// MixSeed is the number that SplitMix64 (Steele, Lea and Flood 2014) draws in state z. Each z gives another number, which changes in half
// of its bits when z changes in a single bit.
func MixSeed(z uint64) uint64 {
	z += SeedStep
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
