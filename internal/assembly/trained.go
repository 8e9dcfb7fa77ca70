package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// LoadedPolicy is a policy out of a model folder, and the tasks that it was trained on.
type LoadedPolicy struct {
	Config  *config.Config
	Log     *slog.Logger
	Course  *Course
	Sampler *Sampler
	Version int64 // 0 for a folder that is no run's
	Close   func()
}

// ModelChoice names a model: a step of the run, a folder, or the model that the run begins with.
type ModelChoice struct {
	Step    int64 // -1 for the newest
	Folder  string
	Initial bool
}

// Models loads models into this process.
type Models struct {
	cfg    *config.Config
	parts  parts.Registry
	memory machine.Memory // that the process may have
	log    *slog.Logger
	// files and environ are the sources that win over the configuration that a run has left.
	files, environ []string
}

// Models loads models as this process is configured.
func (s *Run) Models() *Models {
	return &Models{s.Config, s.Parts, s.Memory, s.Log, s.Files, s.Environ}
}

// under is the same with another configuration.
func (l *Models) under(cfg *config.Config) *Models {
	out := *l
	out.cfg = cfg
	return &out
}

// openCourse opens the tasks of the configuration.
func (l *Models) openCourse(ctx context.Context) (*Course, error) {
	return OpenTasks(ctx, l.parts, l.cfg, l.log)
}

// Load loads the model that is chosen.
func (l *Models) Load(ctx context.Context, m *ModelChoice) (*LoadedPolicy, error) {
	switch {
	case m.Initial && (m.Folder != "" || m.Step >= 0):
		return nil, fault.Usage(errors.New("--initial: want it, --checkpoint or --step"))
	case m.Initial:
		return l.loadUntrained(ctx)
	case m.Folder != "":
		return l.loadFolder(ctx, m.Folder, max(0, m.Step))
	}
	var loaded *LoadedPolicy
	err := l.UseVersion(ctx, m.Step, func(f *VersionFolder) (err error) {
		loaded, err = l.loadFolder(ctx, f.Dir, f.Version)
		return err
	})
	return loaded, err
}

// loadUntrained loads the model that the run begins with: the model's folder, else weights from the run's seed, before a cold start.
func (l *Models) loadUntrained(ctx context.Context) (*LoadedPolicy, error) {
	if folder := l.cfg.Model.Folder; folder != "" {
		return l.loadFolder(ctx, folder, 0)
	}
	c, err := l.openCourse(ctx)
	if err != nil {
		return nil, err
	}
	engine, err := emptyEngine(l.cfg.WholeBackend, l.cfg.Model.Config(c.Tokenizer.Size()))
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	home, err := os.MkdirTemp("", "weir-initial-")
	if err != nil {
		return nil, fmt.Errorf("keep the untrained model: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }() // it is loaded, or was told
	dir := filepath.Join(home, "model")
	if err := exportPolicy(ctx, engine, dir, c.Tokenizer); err != nil {
		return nil, err
	}
	return l.loadFolder(ctx, dir, 0)
}

// exportPolicy writes an engine's weights with their tokenizer into a folder that is not there.
func exportPolicy(ctx context.Context, engine gpu.Engine, dir string, tok tasks.Tokenizer) error {
	pending, err := engine.Export(ctx, dir, gpu.ExportOptions{})
	if err != nil {
		return err
	}
	if _, err := pending.Wait(ctx); err != nil {
		return err
	}
	return hf.WriteTokenizer(dir, engine.Config(), tok.JSON())
}

// ErrNoCheckpoint is returned, wrapped, where a run has no checkpoint.
var ErrNoCheckpoint = errors.New("there is no checkpoint")

// noCheckpointError is the ErrNoCheckpoint of a run's folder of checkpoints.
type noCheckpointError struct{ dir, run string }

func (e *noCheckpointError) Error() string {
	return fmt.Sprintf("%s has no checkpoint: train one with weir up --run.name %s, or name a folder with --checkpoint", e.dir, e.run)
}

func (e *noCheckpointError) Unwrap() error { return ErrNoCheckpoint }

// Checkpoint is the folder of a step of the run that has a full checkpoint, and the step: the newest when it is negative.
func (l *Models) Checkpoint(step int64) (string, int64, error) {
	dir := l.cfg.Trainer.Checkpoint.Dir
	steps, err := checkpoint.FullSteps(dir)
	if err != nil {
		return "", 0, err
	}
	if len(steps) == 0 {
		return "", 0, &noCheckpointError{dir, l.cfg.Run.Name}
	}
	if step < 0 {
		step = slices.Max(steps)
	}
	if !slices.Contains(steps, step) {
		return "", 0, fault.Usagef("--step %d: %s has %v", step, dir, steps)
	}
	return checkpoint.StepDir(dir, step), step, nil
}

// loadFolder loads a model folder into a sampler.
func (l *Models) loadFolder(ctx context.Context, folder string, version int64) (*LoadedPolicy, error) {
	c, err := l.openCourse(ctx)
	if err != nil {
		return nil, err
	}
	m, err := l.loadInto(ctx, c, folder, version)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return m, nil
}

// loadInto loads a model folder into a sampler for a course that is open, and that closes with it.
func (l *Models) loadInto(ctx context.Context, c *Course, folder string, version int64) (*LoadedPolicy, error) {
	m, err := hf.Load(folder)
	if err != nil {
		return nil, err
	}
	if !sameTokenizer(m.Tokenizer, c.Tokenizer) {
		return nil, fmt.Errorf("%s has another tokenizer than task %s; name its configuration with --config", folder, c.Names())
	}
	policy, wait, err := newSampler(ctx, l.cfg)
	if err != nil {
		return nil, err
	}
	stop := func() {
		_ = wait()    // its work is done
		_ = c.Close() // sandboxes that do not close end with this process
	}
	if err := policy.useVersion(ctx, consumers.Snapshot{Version: version, Config: m.Config, Weights: m.Weights}); err != nil {
		return nil, errors.Join(err, wait())
	}
	return &LoadedPolicy{l.cfg, l.log, c, policy, version, stop}, nil
}

// Score asks the policy questions, as [Sampler.Score] does.
func (m *LoadedPolicy) Score(ctx context.Context, q Question) (*Score, error) {
	return m.Sampler.Score(ctx, m.Config, m.Course, q)
}
