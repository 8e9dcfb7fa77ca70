package api

import "math/rand/v2"

// WorldOf is the world of the i-th demonstration by the default configuration, and its answer.
func WorldOf(i uint64) (world []byte, answer string) {
	rng := rand.New(rand.NewPCG(DefaultDemoConfig().Seed, i))
	q := ask(rng, shuffled(1), rng.IntN(2) == 0)
	return q.prompt("d").World, q.answer()
}
