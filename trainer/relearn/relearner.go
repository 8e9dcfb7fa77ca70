package relearn

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Relearner is a learner at a step of a run. It must not be called by several goroutines at once. Close it.
type Relearner struct {
	cfg     learner.Config
	engine  gpu.Engine
	learner *learner.Learner
	step    int64
}

// Open makes a learner at a checkpoint of the store dir. deps.Engine gets the checkpoint's weights and moments. Its batches must have been
// trained on under cfg.
func Open(ctx context.Context, dir string, cfg learner.Config, deps learner.Deps, from *checkpoint.Checkpoint) (_ *Relearner, err error) {
	l, err := learner.New(cfg, deps)
	if err != nil {
		return nil, err
	}
	r := &Relearner{cfg: cfg, engine: deps.Engine, learner: l, step: from.State.Step}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := l.Restore(ctx, StateOf(from)); err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: %w", r.step, err)
	}
	if !l.NeedsReference() {
		return r, nil
	}
	return r, l.OpenReference(func(reference gpu.Engine) error { return checkpoint.LoadReference(ctx, dir, reference) })
}

// Continue is a Relearner of a learner that has the state of a step. The caller closes the learner, and does not call Close.
func Continue(l *learner.Learner, cfg learner.Config, engine gpu.Engine, step int64) *Relearner {
	return &Relearner{cfg: cfg, engine: engine, learner: l, step: step}
}

// State is the learner's present state without the networks.
func (r *Relearner) State() (*learner.State, error) { return r.learner.Snapshot() }

// StateOf is the learner's part of a checkpoint.
func StateOf(c *checkpoint.Checkpoint) *learner.State {
	s := &learner.State{
		Random: c.State.Random, KLCoef: c.State.KLCoef, ConfiguredKLCoef: c.State.ConfiguredKLCoef,
	}
	if c.Dir != "" { // else it is version 0, which the engine holds
		s.Policy = &learner.Network{Dir: c.Dir, OptimizerSteps: c.State.OptimizerSteps}
	}
	if c.CriticDir != "" {
		s.Critic = &learner.Network{Dir: c.CriticDir, OptimizerSteps: c.State.CriticOptimizerSteps}
	}
	if a := c.State.Advantage; a != nil {
		s.Estimator = &learner.EstimatorState{Name: a.Name, State: a.State}
	}
	return s
}

// FillCheckpoint puts a learner's state into a checkpoint, as StateOf reads it again: all but the policy, which the caller names.
func FillCheckpoint(c *checkpoint.Checkpoint, l *learner.Learner) error {
	s, err := l.Snapshot()
	if err != nil {
		return err
	}
	c.State.Random, c.State.KLCoef, c.State.ConfiguredKLCoef = s.Random, s.KLCoef, s.ConfiguredKLCoef
	if critic := l.Critic(); critic != nil {
		c.Critic = critic
	}
	if s.Estimator != nil {
		c.State.Advantage = &checkpoint.AdvantageState{Name: s.Estimator.Name, State: s.Estimator.State}
	}
	return nil
}

// Step is the step whose state the learner has.
func (r *Relearner) Step() int64 { return r.step }

// Learn learns the next step, whose record is given, from the batch that the store dir has kept of it, and returns the step's numbers as a
// record has them. The error is a *[checkpoint.Damage] where the batch was changed, and wraps [checkpoint.ErrNoBatch] where it is gone.
func (r *Relearner) Learn(ctx context.Context, dir string, record *checkpoint.Record) (map[string]float64, error) {
	if record.Step != r.step+1 {
		return nil, fmt.Errorf("learn step %d again: the learner is at step %d", record.Step, r.step)
	}
	kept, err := checkpoint.ReadBatch(dir, record)
	if err != nil {
		return nil, err
	}
	b, err := NewBatch(r.cfg, record, kept)
	if err != nil {
		return nil, err
	}
	stats, err := r.learner.Learn(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", record.Step, err)
	}
	r.step++
	return checkpoint.FiniteNumbers(stats.Metrics()), nil
}

// Save writes the learner's state into a folder that is missing or empty, and returns it as a checkpoint that Open takes, with the hashes
// of its files in its record.
func (r *Relearner) Save(ctx context.Context, dir string) (*checkpoint.Checkpoint, error) {
	c := &checkpoint.Checkpoint{State: checkpoint.State{Step: r.step}, Policy: r.engine}
	if err := FillCheckpoint(c, r.learner); err != nil {
		return nil, err
	}
	if err := checkpoint.WriteTensors(ctx, dir, c); err != nil {
		return nil, fmt.Errorf("write the tensors of step %d: %w", r.step, err)
	}
	return c, nil
}

// ExportAs writes the policy into a folder that is missing or empty in the form of a published version, and returns the SHA-256 of its
// files by name, as [checkpoint.Published] has them.
func (r *Relearner) ExportAs(ctx context.Context, dir string, as *checkpoint.Published) (map[string]string, error) {
	o := gpu.ExportOptions{DType: gpu.DType(as.DType), ShardBytes: as.ShardBytes, Adapter: as.Adapter}
	pending, err := r.engine.Export(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	files, err := pending.Wait(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range gpu.PolicyFiles(files) {
		if out[f.Name], err = checkpoint.HashFile(filepath.Join(dir, f.Name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// CompareStep compares the newest step, whose record is given, with its outcome now: the hashes of a saved checkpoint, and the numbers. A
// step whose checkpoint was light is compared as the version that was published of it, in the folder dir; as is nil where that version is
// not known.
func (r *Relearner) CompareStep(
	ctx context.Context, record *checkpoint.Record, now checkpoint.Result, as *checkpoint.Published, dir string,
) (*Outcome, error) {
	if record.Result == nil || len(record.Result.Files) > 0 || as == nil {
		return Compare(record, now), nil
	}
	files, err := r.ExportAs(ctx, dir, as)
	if err != nil {
		return nil, err
	}
	was := *record
	was.Result = &checkpoint.Result{Files: as.Files, Numbers: record.Result.Numbers}
	return Compare(&was, checkpoint.Result{Files: files, Numbers: now.Numbers}), nil
}

// Close closes the engines beside the policy's.
func (r *Relearner) Close() error { return r.learner.Close() }
