// Package gpu defines the Engine: the policy model and its optimizer step. The engine knows the model, Go
// knows the learning: a packed micro-batch goes up, log-probabilities, entropies and values come back, the
// gradients of the loss with respect to those go down. Advantages and losses are therefore written once, in
// trainer/advantage and trainer/loss, for every engine.
//
// Engines: gpu/native (pure Go, the default). Checkpoints are Hugging Face folders.
//
// Alignment, everywhere: entry i of an output speaks of token i given the tokens before it in its sequence.
// It comes from the hidden state at i-1. The first token of a sequence has none: its entries are 0.
//
// The package imports nothing of Weir's but schemas.
package gpu
