// Package relearn learns steps of a run again from the run's folder alone, without streams and without inference. The tensors of a step are
// a function of an earlier checkpoint and of the batches since:
//
//	Find     which checkpoint a step is learnt from, and the records of the steps after it
//	Open     a learner at that checkpoint
//	Learn    one step more, from the batch that the trainer has kept of it
//	Save     the state that this makes, as a checkpoint
//	Compare  what the run made of a step with what was made now
//
// On an engine whose sums do not depend on time and threads, as the native one, every step comes out equal to the bit.
package relearn
