// Package streams is the data plane of a run: everything that the roles say to one another goes through it,
// over NATS JetStream.
//
// A run named R has these resources, all created by [Conn.Open] and verified by [Conn.Attach]:
//
//	stream        kind                    holds
//	TICKETS       work queue              one message a ticket, until its producer is done with it
//	TRAJECTORIES  limits, discards new    trajectories and group-closed markers, until the trainer purges them
//	REJECTED      limits, discards old    what was refused, with the reason, until it is too old
//	EVENTS        limits, discards old    what happened, for people
//	WEIGHTS       key-value, history      the manifests of policy versions
//	CONTROL       key-value               what the trainer or an operator tells the run, and who the trainer is
//	SHARDS        object store            the bytes of weights, named by their hash
//	RELEASED      key-value               how often a ticket came back unworked: those deliveries do not count
//
// One trainer at a time works in a run: the holder of its [Seat].
//
// Delivery is at least once everywhere. What makes it exactly once stands in three places: a message id for
// every publish, so that a retry stores nothing twice; the [Feed], which returns a stored message once in its
// life; and the position that the trainer keeps in its checkpoint and hands back in [FeedOptions].
//
// A call that talks to the broker retries what a restart or a full stream can cause until its context ends,
// and returns at once what no retry can mend, such as a permission that the role lacks.
package streams
