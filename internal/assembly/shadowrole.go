package assembly

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/shadow"
)

// Shadow is a shadow of a run: it learns the run's steps under other settings, and is in the run's folder as a run of its own would be.
type Shadow struct {
	// Name is the shadow's; a run may have several.
	Name string
	// From is the step of the run's checkpoint that it begins at, shadow.Newest for the newest.
	From int64
	// Once ends it when the run has no further step.
	Once bool
	// Flags are the keys that were set by flags.
	Flags map[string]string
	// Begun is called before it learns, with the shadow's folder and the step that it has, Step after each step.
	Begun func(folder string, step int64)
	Step  func(shadow.Step)
}

// Shadow runs a shadow of this process's run, which may be up or not, until the run's last step or until ctx ends. It has no connection to
// the run's broker.
func (s *Run) Shadow(ctx context.Context, o Shadow) error {
	if err := streams.CheckRunName(o.Name); err != nil {
		return fmt.Errorf("--shadow: %w", err)
	}
	folder := s.Config.Folder()
	if err := s.awaitConfig(ctx, filepath.Join(folder, ConfigFile), o.Once); err != nil {
		return endedInOrder(ctx, err)
	}
	c := &shadowConfig{run: s, name: o.Name, flags: o.Flags}
	if err := c.resolveConfig(); err != nil {
		return err
	}
	at := &shadowRole{Shadow: o, run: s, config: c}
	return at.learnSteps(ctx)
}

// awaitConfig waits until a run has written its configuration, with its first checkpoint.
func (s *Run) awaitConfig(ctx context.Context, file string, once bool) error {
	poll := time.NewTicker(time.Second / 4)
	defer poll.Stop()
	for first := true; ; first = false {
		_, err := os.Stat(file)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if once {
			return fmt.Errorf("run %s has not begun: there is no %s; name its folder with --run.name and --run.dir, or leave --once out",
				s.Config.Run.Name, file)
		}
		if first {
			fmt.Fprintf(s.Notes, "run %s has not begun: the shadow waits for %s\n", s.Config.Run.Name, file)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shadowRole is a shadow at work.
type shadowRole struct {
	Shadow
	run    *Run
	config *shadowConfig
	file   *report.Recorder
	free   func()
}

// learnSteps learns the run's steps.
func (r *shadowRole) learnSteps(ctx context.Context) (err error) {
	base, cfg := r.config.base, r.config.own
	var files *hf.Files
	if files, err = modelFiles(cfg); err != nil {
		return err
	}
	defer func() {
		if r.file != nil {
			err = errors.Join(err, r.file.Close())
		}
		if r.free != nil {
			r.free()
		}
	}()
	return shadow.Run(ctx, shadow.Config{
		Config: cfg.Trainer.Config, Eta: cfg.Trainer.Eta, MinGroup: cfg.Trainer.MinGroup, Trunks: cfg.Trainer.Branch.Trunks,
		Checkpoint: cfg.Trainer.Checkpoint,
	}, shadow.Deps{
		Run: base.Trainer.Checkpoint.Dir, Name: base.Run.Name, From: r.From, Steps: cfg.Trainer.Steps, Once: r.Once,
		OpenPolicy: r.openPolicy, Files: files, Settings: trainingSettings(cfg), Log: r.run.Log,
		NewEngine: func(model gpu.Config) (gpu.Engine, error) { return emptyEngine(cfg.WholeBackend, model) },
		Begun:     r.beginNumbers, Report: r.noteStep, After: r.run.Parts.AfterStage,
	})
}

// openPolicy makes the policy of a checkpoint's shape.
func (r *shadowRole) openPolicy(ctx context.Context, dir string) (gpu.Engine, error) {
	engine, err := openSavedPolicy(ctx, r.config.own, dir)
	if err == nil && r.free == nil {
		r.free = memory.Bound(5 * weightBytes(engine.Config()))
	}
	return engine, err
}

// beginNumbers writes the shadow's configuration, and opens its numbers without those of steps that it makes again.
func (r *shadowRole) beginNumbers(step int64) error {
	cfg := r.config.own
	if err := noteConfig(cfg, runfolder.Build{Version: r.run.Version, Commit: r.run.Commit}); err != nil {
		return err
	}
	path := filepath.Join(cfg.Folder(), MetricsFile)
	if err := copyMetrics(path, path+".tmp", step); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	if r.file, err = report.NewRecorder(path); err == nil {
		r.Begun(cfg.Folder(), step)
	}
	return err
}

// noteStep writes down a step.
func (r *shadowRole) noteStep(step shadow.Step) error {
	err := r.file.Append(report.Record{
		At: step.At, Type: string(schemas.EventStepDone), Step: step.Number, PolicyVersion: step.Number, Metrics: step.Metrics,
	})
	if err != nil {
		return err
	}
	r.Step(step)
	return nil
}

// ShadowFolder is the folder of a run's shadow.
func ShadowFolder(cfg *config.Config, name string) string {
	return filepath.Join(cfg.Folder(), runfolder.ShadowsFolder, name)
}
