// Package loss computes policy and value losses and their gradients with respect to the new
// log-probabilities, entropies and values: pure functions, no input or output, no clock, no globals.
//
// Layout: as in trainer/advantage, ragged rows packed end to end.
package loss
