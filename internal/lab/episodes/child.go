package episodes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// childConfig is what a producer's process needs.
type childConfig struct {
	Config

	URL  string `json:"url"`
	Name string `json:"name"`
	Dir  string `json:"dir"`
}

// RunProducer is a producer in a process of its own: text is its configuration.
func RunProducer(ctx context.Context, text string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("read the configuration of a producer: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	conn, err := harness.Connect(ctx, c.URL, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	run, err := conn.Attach(ctx, runName)
	if err != nil {
		return err
	}
	source, err := run.Tickets(ctx, streams.TicketOptions{Producer: c.Name, MaxLeases: c.Slots})
	if err != nil {
		return err
	}
	defer source.Close()
	calls, err := harness.OpenCallLog(filepath.Join(c.Dir, callsFile))
	if err != nil {
		return err
	}
	defer calls.Close()
	client := generate.NewClient(run, generate.ClientOptions{})
	defer client.Close()
	env, err := c.newEnvironment(client, calls)
	if err != nil {
		return err
	}
	cfg := producers.DefaultConfig()
	cfg.Name, cfg.Concurrency, cfg.Journal = c.Name, c.Slots, c.Journal
	return producers.Run(ctx, cfg, producers.Deps{
		Stream: producers.OnRun(run, source), Environments: map[string]producers.Environment{task: env}, Log: log,
	})
}
