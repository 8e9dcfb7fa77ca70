package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// trained is a policy out of a model folder, and the tasks that it was trained on.
type trained struct {
	*session
	course  *course
	policy  *sampler
	version int64 // 0 for a folder that is no run's
	close   func()
}

// chosenModel names a model: a step of the run, a folder, or what the run begins with.
type chosenModel struct {
	step    *int64
	folder  *string
	initial bool
}

// modelFlags adds the flags that name a model to a command, that for what the run begins with among them.
func (a *app) modelFlags(cmd *cobra.Command) *chosenModel {
	m := a.checkpointFlags(cmd)
	cmd.Flags().BoolVar(&m.initial, "initial", false, "the model that the run begins with, untrained")
	return m
}

func (a *app) checkpointFlags(cmd *cobra.Command) *chosenModel {
	return &chosenModel{
		step:   cmd.Flags().Int64("step", -1, "a step of the run; the newest by default"),
		folder: cmd.Flags().String("checkpoint", "", "a model folder in Hugging Face's layout, in place of the run's"),
	}
}

// chosen adds the flags that name a model to a command; the function that it returns loads it.
func (a *app) chosen(cmd *cobra.Command) func(*cobra.Command) (*trained, error) {
	m := a.checkpointFlags(cmd)
	return func(cmd *cobra.Command) (*trained, error) {
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return nil, err
		}
		s, err := a.sessionOf(cfg)
		if err != nil {
			return nil, err
		}
		return m.open(cmd.Context(), s)
	}
}

// open loads the model.
func (m *chosenModel) open(ctx context.Context, s *session) (*trained, error) {
	switch {
	case m.initial && (*m.folder != "" || *m.step >= 0):
		return nil, fault.Usage(errors.New("--initial: want it, --checkpoint or --step"))
	case m.initial:
		return s.untrained(ctx)
	case *m.folder != "":
		return s.trained(ctx, *m.folder, max(0, *m.step))
	}
	dir, newest, err := s.checkpoint(*m.step)
	if err != nil {
		return nil, err
	}
	return s.trained(ctx, dir, newest)
}

// untrained loads what the run begins with: the model's folder, else weights from the run's seed, before a cold start.
func (s *session) untrained(ctx context.Context) (*trained, error) {
	if folder := s.cfg.Model.Folder; folder != "" {
		return s.trained(ctx, folder, 0)
	}
	c, err := s.openCourse(ctx, s.cfg, s.log)
	if err != nil {
		return nil, err
	}
	engine, err := emptyEngine(s.cfg.WholeBackend, s.cfg.Model.Config(c.tokenizer.Size()))
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
	if err := exportPolicy(ctx, engine, dir, c.tokenizer); err != nil {
		return nil, err
	}
	return s.trained(ctx, dir, 0)
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

// checkpoint is the folder of a step of the run, and the step: the newest when it is negative.
func (s *session) checkpoint(step int64) (string, int64, error) {
	dir := s.cfg.Trainer.Checkpoint.Dir
	steps, err := checkpoint.Steps(dir)
	if err != nil {
		return "", 0, err
	}
	if len(steps) == 0 {
		return "", 0, fmt.Errorf("%s has no checkpoint: train one with weir up --run.name %s, or name a folder with --checkpoint", dir, s.cfg.Run.Name)
	}
	if step < 0 {
		step = slices.Max(steps)
	}
	if !slices.Contains(steps, step) {
		return "", 0, fault.Usagef("--step %d: %s has %v", step, dir, steps)
	}
	return checkpoint.StepDir(dir, step), step, nil
}

// trained loads a model folder into a sampler.
func (s *session) trained(ctx context.Context, folder string, version int64) (*trained, error) {
	c, err := s.openCourse(ctx, s.cfg, s.log)
	if err != nil {
		return nil, err
	}
	m, err := s.loaded(ctx, c, folder, version)
	if err != nil {
		return nil, errors.Join(err, c.spaces.Close())
	}
	return m, nil
}

// loaded loads a model folder into a sampler for a course that is open, and that closes with it.
func (s *session) loaded(ctx context.Context, c *course, folder string, version int64) (*trained, error) {
	m, err := hf.Load(folder)
	if err != nil {
		return nil, err
	}
	if !sameTokenizer(m.Tokenizer, c.tokenizer) {
		return nil, fmt.Errorf("%s has another tokenizer than task %s; name its configuration with --config", folder, c.names())
	}
	policy, wait, err := newSampler(ctx, s)
	if err != nil {
		return nil, err
	}
	stop := func() {
		_ = wait()                                         // its work is done
		_ = errors.Join(c.spaces.Close(), c.apart.Close()) // what they cannot end ends with this process
	}
	if err := policy.use(ctx, consumers.Snapshot{Version: version, Config: m.Config, Weights: m.Weights}); err != nil {
		return nil, errors.Join(err, wait())
	}
	return &trained{s, c, policy, version, stop}, nil
}
