// Package evaluation has evaluation tickets: the trainer's process asks, producers run the episodes.
//
// An evaluation ticket is a [schemas.Ticket] that is pinned to one policy version. It is no message of a stream: [Client.Roll] sends it to
// one producer of the run and waits for the answer, which comes back to who asked and to nobody else, so that nothing of an evaluation can
// reach the trainer's batches. The caller keeps the account: a producer that dies is silent, and its ticket is asked of another; an answer
// that comes later, or twice, is dropped.
//
// A producer takes at most [Config.Concurrency] evaluation tickets at once, beside its training tickets, whose room they never take. It
// refuses further tickets, and all tickets while it drains or the run is paused; the caller waits and asks again.
package evaluation
