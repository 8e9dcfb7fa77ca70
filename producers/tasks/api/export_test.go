package api

import "math/rand/v2"

// WorldOf is the world of the i-th demonstration by the default configuration, and its answer.
func WorldOf(i uint64) (world []byte, answer string) {
	rng := rand.New(rand.NewPCG(DefaultDemoConfig().Seed, i))
	q := script{names: shuffledNames(1)}.drawQuestion(rng)
	return q.newPrompt("d").World, q.rightAnswer()
}
