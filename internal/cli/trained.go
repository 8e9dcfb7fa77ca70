package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu/hf"
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

// chosen adds the flags that name a model to a command; the function that it returns loads it.
func (a *app) chosen(cmd *cobra.Command) func(*cobra.Command) (*trained, error) {
	step := cmd.Flags().Int64("step", -1, "a step of the run; the newest by default")
	folder := cmd.Flags().String("checkpoint", "", "a model folder in Hugging Face's layout, in place of the run's")
	return func(cmd *cobra.Command) (*trained, error) {
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return nil, err
		}
		s, err := a.sessionOf(cfg)
		if err != nil {
			return nil, err
		}
		if *folder != "" {
			return s.trained(cmd.Context(), *folder, max(0, *step))
		}
		dir, newest, err := s.checkpoint(*step)
		if err != nil {
			return nil, err
		}
		return s.trained(cmd.Context(), dir, newest)
	}
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
		return "", 0, &exitError{exitUsage, fmt.Errorf("--step %d: %s has %v", step, dir, steps)}
	}
	return checkpoint.StepDir(dir, step), step, nil
}

// trained loads a model folder into a sampler.
func (s *session) trained(ctx context.Context, folder string, version int64) (*trained, error) {
	c, err := s.openCourse(ctx, s.cfg, s.log)
	if err != nil {
		return nil, err
	}
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
	stop := func() { _ = wait() } // its work is done
	if err := policy.use(ctx, consumers.Snapshot{Version: version, Config: m.Config, Weights: m.Weights}); err != nil {
		stop()
		return nil, err
	}
	return &trained{s, c, policy, version, stop}, nil
}
