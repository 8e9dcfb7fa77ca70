// Package trainer consumes trajectories and makes policy versions.
//
// Run is the loop, on a single page: the next batch, the update, a checkpoint, and only then the acks, the new version and new tickets.
//
//	stream, err := trainer.OverStreams(run, weights.DefaultConfig()) // run is a *streams.Run
//	if err != nil {
//		return err
//	}
//	return trainer.Run(ctx, trainer.DefaultConfig(), trainer.Deps{Engine: engine, Stream: stream, Prompts: prompts})
//
// Each room has a single owner. intake turns the stream into batches and tracks every message; learner turns a batch into a better policy,
// and is the package to read for the algorithm; control has the bounds that operators change; report has the numbers, whose keys are in
// metrics; checkpoint has the state that must survive a crash. Pure packages are below: batch assembles groups, admission bounds how far
// ahead work is issued, advantage and loss are the maths.
//
// The trainer's whole state is in the checkpoint or can be read from the stream again: killed at any instant and started again, it trains
// on the same batches. Between the checkpoint and the end of a step everything (ack, purge, publish, issue) is idempotent and is done again
// on start. A step that drops more than the stream can hold writes the last checkpoint anew while it waits, with the messages that wait for
// their groups in it, so that the stream can be purged.
//
// One goroutine drives the loop and the engine; others follow the control key and the run's seat. Only Config.GroupTimeout's decision
// depends on a clock: otherwise Deps.Now feeds metrics and time stamps.
package trainer
