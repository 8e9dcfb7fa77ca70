package assembly

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/filelock"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Forked is a run that was forked from another.
type Forked struct {
	// Folder is the new run's, Config its configuration.
	Folder, Config string
	checkpoint.ForkedStore
}

// Fork makes the folder of a run that goes on from a step of this run under another name. The folder appears whole or not at all. The
// archive, the log and the streams stay the parent's.
func (s *Run) Fork(name string, step int64) (_ *Forked, err error) {
	if err := streams.CheckRunName(name); err != nil {
		return nil, err
	}
	cfg := *s.Config.Portable()
	from, store := s.Config.Folder(), s.Config.Trainer.Checkpoint.Dir
	cfg.Run.Name, cfg.Broker.StoreDir, cfg.Trainer.Checkpoint.Dir = name, "", ""
	if filepath.Base(cfg.Run.Dir) == runfolder.ShadowsFolder { // a run of its own is beside the run that the shadow followed
		cfg.Run.Dir = filepath.Dir(filepath.Dir(cfg.Run.Dir))
		cfg.Trainer.Checkpoint.Batches = checkpoint.DefaultConfig().Batches
	}
	out := &Forked{Folder: cfg.Folder(), Config: filepath.Join(cfg.Folder(), ConfigFile)}
	if _, err := os.Stat(out.Folder); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run %s is there already, in %s: name another", name, out.Folder)
	}
	if _, err := os.Stat(store); err != nil {
		return nil, fmt.Errorf("run %s has no checkpoints: %w", s.Config.Run.Name, err)
	}
	removeHalfForks(filepath.Dir(out.Folder), name)
	half, err := os.MkdirTemp(filepath.Dir(out.Folder), "."+name+halfFork)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(half))
		}
	}()
	held, err := os.Open(half)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if !filelock.HoldOpen(held) {
		return nil, fmt.Errorf("another fork makes run %s: wait for it, or name another", name)
	}
	if err := os.Chmod(half, 0o755); err != nil {
		return nil, err
	}
	forked, err := checkpoint.Fork(store, filepath.Join(half, "checkpoints"), name, step)
	if errors.Is(err, checkpoint.ErrLocked) {
		const busy = "run %s is being written to, or forked: stop its trainer first, or wait for the fork: %w"
		return nil, fmt.Errorf(busy, s.Config.Run.Name, err)
	}
	if err != nil {
		return nil, err
	}
	out.ForkedStore = *forked
	text, err := config.YAML(&cfg)
	if err != nil {
		return nil, err
	}
	text = append([]byte(s.TrainedBy().Line()), text...)
	if err := os.WriteFile(filepath.Join(half, ConfigFile), text, 0o644); err != nil {
		return nil, err
	}
	if err := copyMetrics(filepath.Join(from, MetricsFile), filepath.Join(half, MetricsFile), step); err != nil {
		return nil, err
	}
	return out, os.Rename(half, out.Folder)
}

// halfFork ends the name of the folder that a fork is made in, before a random number.
const halfFork = ".tmp-"

// removeHalfForks removes the folders of forks of a name that were killed: by hard links they keep the bytes of runs that were removed. A
// fork that is at work holds its folder.
func removeHalfForks(dir, name string) {
	left, _ := filepath.Glob(filepath.Join(dir, "."+name+halfFork+"*")) // names of runs have no pattern
	for _, half := range left {
		if held, err := os.Open(half); err == nil {
			if filelock.HoldOpen(held) {
				_ = os.RemoveAll(half) // it is in nobody's way
			}
			_ = held.Close()
		}
	}
}

// copyMetrics copies the lines of a file of numbers up to a step; a run without the file has none.
func copyMetrics(from, to string, step int64) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var out []byte
	for line := range bytes.Lines(data) {
		var of struct {
			Step int64 `json:"step"`
		}
		if json.Unmarshal(line, &of) == nil && of.Step <= step {
			out = append(out, line...)
		}
	}
	return os.WriteFile(to, out, 0o644)
}
