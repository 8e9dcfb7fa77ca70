package shadow

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/metrics"
	"github.com/weir-rl/weir/trainer/relearn"
)

// goOn goes on from a checkpoint of the shadow. The tensors of a light one are learnt again from the shadow's own batches.
func (s *shadow) goOn(ctx context.Context, c *checkpoint.Checkpoint) error {
	if c.State.Run != s.deps.Name {
		return fmt.Errorf("%s is a shadow of run %q, this is run %q: name another shadow", s.store.Dir(), c.State.Run, s.deps.Name)
	}
	from := c
	if c.State.Light {
		from = c.Full
	}
	if err := s.openLearner(ctx, from); err != nil {
		return err
	}
	if err := s.openReference(ctx, c.State.Step); err != nil {
		return err
	}
	again := relearn.Continue(s.learner, s.cfg.Config, s.engine, from.State.Step)
	for _, r := range c.Since {
		numbers, err := again.Learn(ctx, s.store.Dir(), r)
		if err != nil {
			return fmt.Errorf("learn a step again: %w", err)
		}
		if d := relearn.Compare(r, checkpoint.Result{Numbers: numbers}).Largest(); d.Key != "" {
			s.deps.Log.Warn("a step that was learnt again came out otherwise", "step", r.Step, "number", d.Key, "was", d.Was, "now", d.Now)
		}
		s.deps.After("relearn")
	}
	s.step, s.saved, s.totals = c.State.Step, c.State.Step, c.State.Totals
	s.counts.missed = int64(c.State.Metrics[metrics.ShadowMissed.Name])
	s.counts.empty = int64(c.State.Metrics[metrics.ShadowEmpty.Name])
	s.deps.Log.Info("the shadow goes on", "after_step", s.step, "learnt_again", len(c.Since))
	return nil
}

// saveStart makes the run's checkpoint that the shadow begins at the shadow's own first, with the settings of the shadow.
func (s *shadow) saveStart(ctx context.Context, from *checkpoint.Checkpoint) error {
	c, err := s.newCheckpoint(&from.Record)
	if err != nil {
		return err
	}
	c.Record.Forked = &checkpoint.RecordFork{Parent: s.deps.Name, Chain: from.Record.Chain}
	if err := s.store.Save(ctx, c); err != nil {
		return err
	}
	s.saved = s.step
	s.fulls.NoteFull(s.step, s.deps.Now(), 0)
	s.deps.Log.Info("the shadow begins", "at_step", s.step)
	return nil
}

// saveStep writes the unit of a step: batch, record and state, with tensors where the schedule has them due. A light checkpoint rests on
// the steps before it, so that after a step without a batch the next checkpoint is a full one.
func (s *shadow) saveStep(ctx context.Context, l *learntStep) error {
	began := s.deps.Now()
	c, err := s.newCheckpoint(l.line)
	if err != nil {
		return err
	}
	b := l.batch
	// What the run dropped is accounted for in the shadow's record too, so that a run that is forked from the shadow lacks no prompt.
	if c.Record.Groups, c.Record.Use = l.trainedGroups(), l.line.Use; l.line.Use > 1 {
		l.rejected, l.dropped = nil, nil // they ended with their first use
	}
	c.Record.Rejected, c.Record.Dropped = l.rejected, slices.Concat(l.line.Dropped, l.dropped)
	c.Record.Result = &checkpoint.Result{Numbers: checkpoint.FiniteNumbers(l.stats.Metrics())}
	c.Batch = b.Deliveries()
	s.totals.Trajectories += int64(b.Trajectories())
	s.totals.Rejected += int64(len(l.rejected))
	s.totals.OptimizerSteps += l.stats.OptimizerSteps
	c.State.Totals = s.totals
	compare := s.hasRunWeights()
	c.State.Light = s.saved == s.step-1 && !compare && !s.fulls.IsFullDue(s.step, began)
	l.metrics = s.stepMetrics(l)
	c.State.Metrics = checkpoint.FiniteNumbers(l.metrics)
	if err := s.store.Save(ctx, c); err != nil {
		return err
	}
	s.saved = s.step
	s.fulls.NoteSaved(&c.State, s.deps.Now(), s.deps.Now().Sub(began))
	if compare {
		s.measureWeights(ctx, l.metrics)
	}
	metrics.TimeSave.Set(l.metrics, s.deps.Now().Sub(began).Seconds())
	metrics.TimeStep.Set(l.metrics, s.deps.Now().Sub(l.began).Seconds())
	return nil
}

// newCheckpoint returns the whole state as a checkpoint; line is the run's line of the step, from which a run that is forked from the
// shadow goes on with the prompts.
func (s *shadow) newCheckpoint(line *checkpoint.Record) (*checkpoint.Checkpoint, error) {
	again := openAgain(line)
	c := &checkpoint.Checkpoint{
		State: checkpoint.State{
			Run: s.deps.Name, Step: s.step,
			Eta: s.cfg.Eta, ConfiguredEta: s.cfg.Eta, SavedAt: s.deps.Now().UTC(), Settings: s.deps.Settings, Totals: s.totals,
			Issue:     checkpoint.Issue{NextCursor: line.NextCursor, NextIndex: line.NextCursor, Again: again},
			Admission: admission.State{Accepted: int(s.step) * s.cfg.BatchGroups, Version: s.step},
		},
		Record: checkpoint.Record{
			Step: s.step, Stream: line.Stream, Created: line.Created, Losses: line.Losses, NextCursor: line.NextCursor, Again: slices.Clone(again),
		},
		Policy: s.engine, Tokenizer: s.tokenizer, Files: s.deps.Files,
	}
	return c, relearn.FillCheckpoint(c, s.learner)
}
