package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func (a *app) evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "eval", Short: "Score a checkpoint on held-out questions", Args: cobra.NoArgs,
		Example: "  weir eval\n  weir eval --split test --questions 480 --temperature 1\n  weir eval --no-tool",
	}
	split := cmd.Flags().String("split", string(tasks.Validation), "train, validation or test")
	questions := cmd.Flags().Int("questions", 240, "how many are asked")
	temperature := cmd.Flags().Float32("temperature", 0, "0 is greedy")
	noTool := cmd.Flags().Bool("no-tool", false, "take the tool away: what the policy knows by itself")
	step := cmd.Flags().Int64("step", -1, "a step of the run; the newest by default")
	folder := cmd.Flags().String("checkpoint", "", "a model folder in Hugging Face's layout, in place of the run's")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(tasks.Splits(), tasks.Split(*split)) {
			return &exitError{exitUsage, fmt.Errorf("--split %s: want train, validation or test", *split)}
		}
		if *questions <= 0 {
			return &exitError{exitUsage, fmt.Errorf("--questions %d: must be positive", *questions)}
		}
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return err
		}
		s, err := a.sessionOf(cfg)
		if err != nil {
			return err
		}
		t, policy, version, stop, err := s.load(cmd.Context(), *folder, *step)
		if err != nil {
			return err
		}
		defer stop()
		r, err := policy.score(cmd.Context(), s, t, question{tasks.Split(*split), *questions, *temperature, *noTool})
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(a.out).Encode(r)
		}
		fmt.Fprintf(a.out, "%s split, version %d: exact match %.3f ± %.3f over %d questions, %.2f searches each   %s\n",
			*split, version, r.ExactMatch, r.StandardError(), r.N, r.Turns, bySource(r))
		return nil
	}
	return cmd
}

// bySource lists the score of each kind of question.
func bySource(r *producers.EvalReport) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(r.BySource)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", source, r.BySource[source].ExactMatch))
	}
	return strings.Join(parts, "  ")
}

// load makes a sampler over a model folder: the named one, or the run's checkpoint of a step, the newest when
// step is negative.
func (s *session) load(ctx context.Context, folder string, step int64) (*task, *sampler, int64, func(), error) {
	t, err := newTask(s.cfg)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	if folder == "" {
		dir := s.cfg.Trainer.Checkpoint.Dir
		steps, err := checkpoint.Steps(dir)
		if err != nil {
			return nil, nil, 0, nil, err
		}
		if len(steps) == 0 {
			return nil, nil, 0, nil, fmt.Errorf("%s has no checkpoint: train one with weir up --run.name %s, or name a folder with --checkpoint", dir, s.cfg.Run.Name)
		}
		if step < 0 {
			step = slices.Max(steps)
		}
		if !slices.Contains(steps, step) {
			return nil, nil, 0, nil, &exitError{exitUsage, fmt.Errorf("--step %d: %s has %v", step, dir, steps)}
		}
		folder = checkpoint.StepDir(dir, step)
	}
	m, err := hf.Load(folder)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	if !bytes.Equal(m.Tokenizer, t.tokenizer.JSON()) {
		return nil, nil, 0, nil, fmt.Errorf("%s has another tokenizer than task %s; name its configuration with --config", folder, s.cfg.Task.Name)
	}
	policy, wait := newSampler(ctx, s)
	if err := policy.use(ctx, max(0, step), m.Config, m.Weights); err != nil {
		return nil, nil, 0, nil, err
	}
	return t, policy, max(0, step), func() { _ = wait() }, nil // its work is done
}

// modelOf reads the model's description in a manifest.
func modelOf(m *schemas.Manifest) (model gpu.Config, err error) {
	if err := json.Unmarshal(m.Config, &model); err != nil {
		return model, fmt.Errorf("read the model's configuration of version %d: %w", m.Version, err)
	}
	return model, model.Validate()
}
