package consumers

import "github.com/weir-rl/weir/schemas"

// uniformAt is the random number in [0, 1) that draws the token at a position of a context: a counter hash, so
// that no state is carried between tokens, calls or consumers.
func uniformAt(seed uint64, position int) float64 {
	h := schemas.MixSeed(schemas.MixSeed(seed^0x5851f42d4c957f2d) + uint64(position)*schemas.SeedStep)
	return float64(h>>11) * 0x1p-53
}
