// Package adapter adds low-rank adapters (LoRA, Hu et al. 2021) to the frozen weights that they were trained beside, without an
// engine: a reader of adapter versions has the frozen weights once, and merges each version.
//
// A matrix W with an adapter stands for W + alpha/rank B A, in float32, as the engine that trains them adds them.
//
// Invariant: merged weights have the bits of the trainer's own export of them.
package adapter
