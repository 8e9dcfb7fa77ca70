// Package batch turns the stream's deliveries into batches to train on. It is a state machine without input, output or clock: deliveries go
// in, verdicts and batches come out.
//
// A group (the samples of a prompt at an issue, and a greedy rollout as their baseline where the advantage needs a baseline) is open from
// the moment its tickets are issued. It is complete when every sample has arrived or been cancelled, and is then judged: trajectories that
// are too stale are refused; a group with too few left, or without its baseline, is dropped and its prompt is to be issued again; a group
// that is not worth training on, as when all its rewards are equal, is dropped, and another prompt takes its place; the others are ready. A
// batch is the oldest ready groups, in the order in which they were issued.
//
// The same deliveries in the same order give the same verdicts and the same batches, which is why a trainer
// that starts again from a checkpoint and reads the stream from there trains on the same batches.
//
// Pack and Rows lay a batch out as packed rows for the model, the advantages and the loss.
package batch
