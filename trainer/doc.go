// Package trainer consumes trajectories and makes policy versions.
//
// Run is the loop, on one page: the next batch, the policy's log-probabilities at the start of the step, masked
// advantages, the update, a checkpoint, and only then the acks, the new version and new tickets.
//
// What is pure is apart: batch assembles groups, admission bounds how far ahead work is issued, advantage and
// loss are the maths. What must survive a crash is in checkpoint. The trainer itself remembers nothing that is
// not in the checkpoint or cannot be read from the stream again: killed at any instant and started again, it
// trains on the same batches. Between the checkpoint and the end of a step everything (ack, purge, publish,
// issue) is idempotent and is done again on start. A step that drops more than the stream can hold writes the last
// checkpoint anew while it waits, with the messages that wait for their groups in it, so that the stream can be purged.
//
// One goroutine drives the loop and the engine; another follows the control key. There is no clock in any
// decision: Deps.Now feeds metrics and time stamps.
package trainer
