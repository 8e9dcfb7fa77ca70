package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// configFile is the resolved configuration in a run's folder.
const configFile = "config.yaml"

// folder makes the run's folder.
func (s *session) folder() (string, error) {
	dir := s.cfg.Folder()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the run's folder: %w; name another place with --run.dir", err)
	}
	return dir, nil
}

// noteConfig writes the resolved configuration into the run's folder.
func (s *session) noteConfig() error {
	text, err := config.YAML(s.cfg.Portable())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.cfg.Folder(), configFile), text, 0o644); err != nil {
		return fmt.Errorf("write the resolved configuration: %w", err)
	}
	return nil
}

// lasting says whether a key belongs to what a run is: its checkpoints mean nothing, or its held-out questions are not
// held out, under another value.
func lasting(key string) bool {
	switch key {
	case "run.seed", "trainer.critic.network", "task.name", "task.countries.split_seed", "task.countries.test_countries", "task.countries.validation_countries":
		return true
	}
	return strings.HasPrefix(key, "model.")
}

// sameRun refuses to go on with a run that was begun with another model, seed or task.
func (s *session) sameRun() error {
	steps, err := checkpoint.Steps(s.cfg.Trainer.Checkpoint.Dir)
	if err != nil || len(steps) == 0 {
		return err
	}
	file := filepath.Join(s.cfg.Folder(), configFile)
	begun := config.Default()
	if _, err := config.Load(begun, config.Sources{Written: file}); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("how run %s was begun: %w", s.cfg.Run.Name, err)
	}
	was, is := config.Values(begun), config.Values(s.cfg)
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if lasting(key) && was[key] != is[key] {
			faults = append(faults, fmt.Errorf("%s: %v, and the run was begun with %v", key, is[key], was[key]))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &exitError{exitConfig, fmt.Errorf("run %s in %s cannot go on under another configuration; begin another with --run.name:\n%w",
		s.cfg.Run.Name, s.cfg.Folder(), errors.Join(faults...))}
}

// loadWritten is load over the configuration that the run's folder holds, if it holds one: whoever looks at a run need
// not repeat it.
func (a *app) loadWritten(cmd *cobra.Command) (*config.Config, error) {
	named, _, err := a.load(cmd)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(named.Folder(), configFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return named, nil
	}
	flags := typed(cmd)
	flags["run.name"], flags["run.dir"] = named.Run.Name, named.Run.Dir
	cfg, _, err := a.resolve(config.Default(), config.Sources{Written: file, Files: a.files, Environ: a.environ, Flags: flags})
	return cfg, err
}
