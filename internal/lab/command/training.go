package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/weir-rl/weir/internal/config"
)

// bench is a command that trains runs in a folder of its own.
type bench struct {
	*lab
	home string // the folder of the runs
}

// openHome makes a temporary folder for the runs unless a folder is named. The returned function removes a temporary folder.
func (b *bench) openHome() (remove func() error, err error) {
	if b.home != "" {
		return func() error { return nil }, nil
	}
	if b.home, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for the runs: %w", err)
	}
	return func() error { return os.RemoveAll(b.home) }, nil
}

// selfProgram is this program as weir: the command and its first argument.
func selfProgram() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{self, roleCommand}, nil
}

// runSelf runs a command of weir to its end. Its progress goes to this program's standard error; its answer is dropped.
func (l *lab) runSelf(ctx context.Context, args ...string) error {
	program, err := selfProgram()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env, cmd.Stderr = withoutKeys(l.environ), l.err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("weir %s: %w", args[0], errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// trainRun runs every role of a run in a single process until its training is done.
func (b *bench) trainRun(ctx context.Context, cfg *config.Config, title string) error {
	fmt.Fprintln(b.err, title)
	file, err := writeConfig(cfg)
	if err != nil {
		return err
	}
	return b.runSelf(ctx, "up", "--plain", "--config", file)
}

// writeConfig writes a complete configuration beside the run's folder and returns the path of the file.
func writeConfig(cfg *config.Config) (string, error) {
	text, err := config.YAML(cfg)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cfg.Run.Dir, 0o755); err != nil {
		return "", fmt.Errorf("make a folder for the runs: %w", err)
	}
	file := filepath.Join(cfg.Run.Dir, cfg.Run.Name+".yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("write the configuration of the run: %w", err)
	}
	return file, nil
}

// makeQuiet changes a run to one that nobody looks at: no page, no port of its own, and as few scores as there can be.
func makeQuiet(c *config.Config) {
	c.Telemetry.Listen, c.Broker.Listen, c.View.Listen = "", "127.0.0.1:0", ""
	c.Eval.TestQuestions = 1
}

// coldStart makes the policy that runs start from, as a model folder. It is version 0 of a run of a single step.
func (b *bench) coldStart(ctx context.Context, cfg *config.Config, dir string) error {
	start := *cfg
	start.Run.Name, start.Trainer.Steps, start.Trainer.Checkpoint.Dir, start.Broker.StoreDir = "cold-start", 1, "", ""
	start.Eval.Every, start.Trainer.Selection.DropZeroVariance = 0, false
	if err := start.Finish(); err != nil {
		return config.Invalid(fmt.Errorf("configuration of the cold start:\n%w", err))
	}
	title := "cold start: " + strconv.FormatInt(start.Trainer.ColdStart.Steps, 10) + " steps"
	if err := b.trainRun(ctx, &start, title); err != nil {
		return err
	}
	file := filepath.Join(start.Run.Dir, start.Run.Name+".yaml")
	return b.runSelf(ctx, "model", "export", start.Run.Name, dir, "--step", "0", "--dtype", "float32", "--shard-bytes", "0", "--config", file)
}
