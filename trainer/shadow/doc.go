// Package shadow trains a second policy on the steps of a run, under another loss, estimator, optimizer or staleness bound: several losses
// for one inference bill. A shadow follows the log of the run, which is its record of steps and the batches that it keeps, and has no
// connection to the run's broker: it can issue no ticket, publish no version, ack nothing and take no seat.
//
//	Run        begins at a checkpoint of the run, or goes on from the shadow's own
//	follower   waits for the next line of the run's record
//	admit      judges the step's trajectories under the shadow's own bounds
//	learn      one step of the shadow's learner, the page is learner.Learn
//	save       the same unit as a trainer's: batch, record, state; tensors now and then
//	measure    how far the shadow is from the run
//
// Step N of a shadow is learnt from the trajectories of step N of the run. A shadow whose settings are the run's makes the weights of the
// run, to the bit where the engine repeats.
package shadow
