package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
)

// Small changes a configuration to a run whose steps are quick, which does not end, and whose streams fill and forget soon.
func Small(c *config.Config) {
	c.Run.Name = "chaos"
	c.Eval.Every = 0
	c.View.Listen = "127.0.0.1:0" // a page at a fixed port would be in the way of another run
	c.Trainer.Steps = 1 << 20
	c.Trainer.Checkpoint.FullEvery = 6 // most kills find a light checkpoint
	c.Trainer.ColdStart.Steps = 200
	c.Trainer.BatchGroups, c.Trainer.GroupSize, c.Trainer.Minibatches = 8, 4, 2
	c.Trainer.Eta = 2
	c.Trainer.Optimizer.LearningRate = 1e-5
	c.Trainer.Limits.Timeout = 20 * time.Second
	c.Producer.Concurrency = 32
	c.Producer.Journal.Mode = producers.JournalOn
	c.Producer.RetryDelay, c.Producer.MaxRetryDelay = 200*time.Millisecond, 2*time.Second
	c.Producer.Grace, c.Producer.Settle = 5*time.Second, 5*time.Second
	c.Inference.Slots = 64
	c.Streams.Lease = 5 * time.Second
	c.Streams.MaxDeliver = 50
	c.Streams.DedupeWindow = 20 * time.Second
	c.Streams.MaxTickets, c.Streams.MaxTrajectories = 1024, 2048
	c.Streams.MaxTrajectoryBytes = 64 << 20
	c.Streams.RejectedMaxBytes = 256 << 20
}

// WriteFile writes the configuration of a run into its folder, which it makes, and returns the path of the file that every role
// reads.
func WriteFile(cfg *config.Config, home string) (string, error) {
	text, err := config.YAML(cfg)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("make a folder for the run: %w", err)
	}
	file := filepath.Join(home, "chaos.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("write the configuration of the run: %w", err)
	}
	return file, nil
}
