package generate_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/generate"
)

// An engine that always samples token 7 answers a call.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: engine e1 sampled [7 7] with versions [3 3]
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
	run, err := conn.Open(ctx, "demo", topology)
	if err != nil {
		return err
	}

	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- generate.Serve(serving, run, "e1", sevens) }()
	client := generate.NewClient(run, generate.ClientOptions{})
	defer client.Close()
	result, err := client.Generate(ctx, &schemas.GenerateRequest{Episode: "g1-0-0", Tokens: schemas.Int32s{1, 2}, MaxTokens: 2, Temperature: 1})
	stop()
	if err != nil {
		return err
	}
	fmt.Printf("engine %s sampled %v with versions %v\n", result.Engine, result.Tokens, result.Versions)
	return <-served
}

func sevens(_ context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	chunk := &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}
	for range req.MaxTokens {
		chunk.Tokens, chunk.Logprobs, chunk.Versions = append(chunk.Tokens, 7), append(chunk.Logprobs, -0.5), append(chunk.Versions, 3)
	}
	return emit(chunk)
}
