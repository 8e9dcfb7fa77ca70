// Load puts the load of many producers on a broker of its own and says what it did and what was the limit: go run ./internal/load -h.
//
// Broker, streams, tickets, leases, trajectories and generate calls are the ones of a run. What costs a processor or a GPU elsewhere
// is a clock here: an engine has slots that are busy for a time a token, a tool waits. So a machine without GPUs shows what the
// stream does under a thousand producers, and nothing about how fast a model samples.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	c := defaults()
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	serving := flags.String("serve", "", "be the broker, with its store in this folder")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	flags.IntVar(&c.Producers, "producers", c.Producers, "producers, each with a connection of its own")
	flags.IntVar(&c.Slots, "slots", c.Slots, "episodes that a producer runs at once")
	flags.IntVar(&c.Tokens, "tokens", c.Tokens, "tokens of a trajectory")
	flags.IntVar(&c.Turns, "turns", c.Turns, "turns of an episode")
	flags.IntVar(&c.TurnTokens, "turn-tokens", c.TurnTokens, "tokens sampled in a turn")
	flags.DurationVar(&c.Token, "token", c.Token, "clock of an engine: time a token")
	flags.DurationVar(&c.Tool, "tool", c.Tool, "clock of a tool: time a call, one a turn")
	flags.IntVar(&c.Engines, "engines", c.Engines, "engines on the stream; 0: the producer waits for the tokens itself")
	flags.IntVar(&c.EngineSlots, "engine-slots", c.EngineSlots, "calls that an engine samples at once")
	flags.DurationVar(&c.For, "for", c.For, "how long it is measured, after everybody has connected")
	flags.DurationVar(&c.Lease, "lease", c.Lease, "length of a lease, renewed every third of it")
	flags.BoolVar(&c.Sync, "sync", c.Sync, "the broker syncs every message to its disk")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *serving != "" {
		return serve(ctx, *serving, c.Sync)
	}
	if err := c.Validate(); err != nil {
		return err
	}
	report, err := measure(ctx, c)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(report)
	}
	report.print(os.Stdout)
	return nil
}
