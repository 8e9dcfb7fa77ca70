package streams_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// A ticket goes to a producer, and its trajectory to the trainer, through a broker in this process.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// producer p1 works on g7-0-0, delivery 1
	// trainer got the trajectory of g7-0-0 at sequence 1
}

func example(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "weir-example-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config := broker.DefaultConfig()
	config.StoreDir, config.Listen = dir, ""
	b, err := broker.Start(ctx, config, nil)
	if err != nil {
		return err
	}
	defer b.Shutdown()
	conn, err := streams.Connect(ctx, streams.ConnectConfig{Broker: b}, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 16<<20, 1<<20
	run, err := conn.Open(ctx, "test", topology)
	if err != nil {
		return err
	}
	if err := run.Issue(ctx, streamtest.Ticket(7, 0)); err != nil {
		return err
	}

	source, err := run.Tickets(ctx, streams.TicketOptions{Producer: "p1"})
	if err != nil {
		return err
	}
	defer source.Close()
	lease, err := source.Take(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("producer p1 works on %s, delivery %d\n", lease.Ticket.ID, lease.Delivery)
	if err := run.Publish(ctx, streamtest.Trajectory(7, 0, 100, 0)); err != nil {
		return err
	}
	if err := lease.Done(ctx); err != nil {
		return err
	}

	feed, err := run.Feed(ctx, streams.FeedOptions{})
	if err != nil {
		return err
	}
	defer feed.Close()
	delivery, err := feed.Next(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("trainer got the trajectory of %s at sequence %d\n", delivery.Trajectory.ID, delivery.Sequence)
	return feed.Ack(ctx, delivery.Sequence)
}
