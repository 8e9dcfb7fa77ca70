package assembly

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// VersionFolder is the model folder of a version of the run.
type VersionFolder struct {
	Dir     string
	Version int64
	// remove is the folder that is removed at the end; "" for a checkpoint's own.
	remove string
}

// Close removes the folder unless it is a checkpoint's own.
func (f *VersionFolder) Close() error {
	if f.remove == "" {
		return nil
	}
	return os.RemoveAll(f.remove)
}

// UseVersion calls use with the model folder of [Models.OpenVersion]. Where the run's trainer removes the checkpoint meanwhile, use is
// called again with another: of the newest version, or learnt again.
func (l *Models) UseVersion(ctx context.Context, step int64, use func(*VersionFolder) error) error {
	return retryRemoved(func() (dir string, err error) {
		f, err := l.OpenVersion(ctx, step)
		if err != nil {
			return "", err
		}
		if f.remove != "" {
			return "", errors.Join(use(f), f.Close())
		}
		return f.Dir, use(f)
	})
}

// retryRemoved calls read, which says what folder of a trainer's it reads, "" for none, until it succeeds, or fails though the folder is
// whole, at most mostPlans times.
func retryRemoved(read func() (dir string, err error)) error {
	for n := 1; ; n++ {
		dir, err := read()
		if err == nil || dir == "" || n == mostPlans {
			return err
		}
		if _, gone := os.Stat(dir); !errors.Is(gone, fs.ErrNotExist) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// OpenVersion is the model folder of a step of the run, the newest with a full checkpoint where step is negative. The weights of a step
// without a full checkpoint are learnt again from their batches, as far as these are kept. Close it.
func (l *Models) OpenVersion(ctx context.Context, step int64) (*VersionFolder, error) {
	dir, at, err := l.Checkpoint(step)
	if err == nil {
		return &VersionFolder{Dir: dir, Version: at}, nil
	}
	again, listing := relearn.Replayable(l.cfg.Trainer.Checkpoint.Dir)
	if listing != nil {
		return nil, errors.Join(err, listing)
	}
	if !slices.ContainsFunc(again, func(r relearn.Range) bool { return r.First <= step && step <= r.Last }) {
		if len(again) > 0 {
			const also = "%w; the steps whose weights can be learnt again from their batches are %s"
			err = fault.Usage(fmt.Errorf(also, err, relearn.JoinRanges(again)))
		}
		return nil, err
	}
	var f *VersionFolder
	err = retryRemoved(func() (from string, err error) {
		f, from, err = l.learnVersion(ctx, step)
		return from, err
	})
	if err != nil {
		return nil, fmt.Errorf("learn the weights of version %d again: %w", step, err)
	}
	return f, nil
}

// learnVersion learns the weights of a version again into a folder of its own, from a checkpoint in the folder from.
func (l *Models) learnVersion(ctx context.Context, step int64) (_ *VersionFolder, from string, err error) {
	home, err := os.MkdirTemp("", "weir-version-")
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(home))
		}
	}()
	run := &Run{Options: Options{Parts: l.parts, Files: l.files, Environ: l.environ, Log: l.log}, Config: l.cfg}
	r := &stepReplayer{run: run, store: l.cfg.Trainer.Checkpoint.Dir, written: writtenConfig(l.cfg), scratch: home}
	r.Each = func(o *relearn.Outcome, _ bool) error {
		if o.Was != nil && !o.Equal() {
			l.log.Warn("a step that was learnt again came out otherwise: the weights are not those of the run", "step", o.Step, "files", o.Files)
		}
		return nil
	}
	if r.plan, err = relearn.Find(r.store, step, step); err != nil {
		return nil, "", err
	}
	full := r.plan.From
	l.log.Info("learning steps again from their batches", "from_step", full.State.Step, "to_step", step)
	learnt, err := r.learnAll(ctx)
	if err != nil {
		return nil, full.Dir, err
	}
	dir := filepath.Join(home, "model")
	if err := errors.Join(os.Rename(learnt.Dir, dir), checkpoint.LinkModelFiles(full.Dir, dir)); err != nil {
		return nil, full.Dir, err
	}
	return &VersionFolder{Dir: dir, Version: step, remove: home}, full.Dir, nil
}
