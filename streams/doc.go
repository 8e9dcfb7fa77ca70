// Package streams is the data plane of a run: everything that the roles send to one another goes through it, over NATS JetStream.
//
// A trainer opens the run, issues tickets and reads trajectories; a producer takes a ticket, publishes its trajectory and ends the
// ticket:
//
//	conn, err := streams.Connect(ctx, streams.ConnectConfig{URL: "nats://127.0.0.1:4222"}, log)
//	run, err := conn.Open(ctx, "demo", streams.DefaultTopology())
//	err = run.Issue(ctx, ticket)
//
//	source, err := run.Tickets(ctx, streams.TicketOptions{Producer: "p1"})
//	lease, err := source.Take(ctx)
//	err = run.Publish(ctx, trajectoryOf(lease.Ticket))
//	err = lease.Done(ctx)
//
//	feed, err := run.Feed(ctx, streams.FeedOptions{})
//	delivery, err := feed.Next(ctx)
//	err = feed.Ack(ctx, delivery.Sequence)
//
// A run named R has these resources, all created by [Conn.Open] and verified by [Conn.Attach]:
//
//	stream        kind                    holds
//	TICKETS       work queue              a message for each ticket, until its producer ends the ticket
//	TRAJECTORIES  limits, discards new    trajectories and group-closed markers, until the trainer purges them
//	REJECTED      limits, discards old    refused messages with the reason, until they are too old
//	EVENTS        limits, discards old    events, for people to follow
//	WEIGHTS       key-value, history      the manifests of policy versions
//	CONTROL       key-value               settings of the whole run, and the holder of the trainer's seat
//	SHARDS        object store            the bytes of weights, named by their hash
//	RELEASED      key-value               how often a ticket came back unworked: such deliveries are not counted
//
// A single trainer at a time works in a run: the holder of its [Seat].
//
// Delivery is at least once everywhere. Three things make it exactly once: a message id for every publish, so that a retry stores
// nothing twice; the [Feed], which returns a stored message once in its life; and the position that the trainer keeps in its
// checkpoint and passes to [FeedOptions] when it starts again.
//
// A call to the broker retries until its context ends what a restart or a full stream can cause, and returns at once a failure
// that no retry can mend, such as a permission that the role lacks.
package streams
