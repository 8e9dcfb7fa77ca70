package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/relearn"
)

// restoreLearner gives the learner the state of a checkpoint. The tensors of a light checkpoint are learnt again, from a full checkpoint
// and the batches since, under the settings that the run had then.
//
// Invariant: a start from a light checkpoint goes on with the weights, the optimizer and the random state that the run had.
//
// Where the engine does not repeat to the bit, the weights are those that were published: adoptPublished.
func (t *trainer) restoreLearner(ctx context.Context, c *checkpoint.Checkpoint) error {
	from, again := c, c.State.Light
	if again {
		from = c.Full
		t.deps.Log.Info("learning steps again from their batches", "from_step", from.State.Step, "to_step", c.State.Step)
		before, err := t.learnerBefore(c)
		if err != nil {
			return err
		}
		if before == nil && !t.deps.Engine.Limits().Repeats {
			before = &t.cfg.Config // its outcome is laid beside the published version
		}
		if before != nil {
			if from, err = t.relearnApart(ctx, c, *before); err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(from.Dir) }() // the next start removes it at the latest
			again = false
		}
	}
	if err := t.learner.Restore(ctx, relearn.StateOf(from)); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", from.State.Step, err)
	}
	if t.learner.NeedsReference() {
		err := t.learner.OpenReference(func(reference gpu.Engine) error {
			return t.store.Reference(ctx, c.State.Step, t.deps.Engine, t.deps.Tokenizer, reference)
		})
		if err != nil {
			return err
		}
	}
	if !again {
		return nil
	}
	return t.relearnSteps(ctx, relearn.Continue(t.learner, t.cfg.Config, t.deps.Engine, from.State.Step), c)
}

// canLearnAgain reports whether the steps of light checkpoints can be learnt again with an engine.
func canLearnAgain(cfg checkpoint.Config, engine gpu.Engine) bool {
	a, ok := engine.(gpu.Adapting)
	adapts := ok && a.Adapts() // versions are adapters then, and checkpoints whole models
	return engine.Limits().Repeats || !adapts && cfg.MaxDrift > 0
}

// learnerBefore is the configuration that the steps of a light checkpoint were learnt under; nil where it is the trainer's own.
func (t *trainer) learnerBefore(c *checkpoint.Checkpoint) (*learner.Config, error) {
	if t.deps.LearnerOf == nil || settingsHash(c.State.Settings) == settingsHash(t.deps.Settings) {
		return nil, nil
	}
	before, err := t.deps.LearnerOf(c.State.Settings)
	if err != nil {
		return nil, fmt.Errorf("the settings that the steps %d to %d were trained with: %w", c.Full.State.Step+1, c.State.Step, err)
	}
	if reflect.DeepEqual(before, t.cfg.Config) {
		return nil, nil
	}
	return &before, nil
}

// relearnApart learns the steps of a light checkpoint again under the configuration that they were learnt under, and returns the outcome as
// a checkpoint in a folder of its own.
func (t *trainer) relearnApart(
	ctx context.Context, c *checkpoint.Checkpoint, cfg learner.Config,
) (saved *checkpoint.Checkpoint, err error) {
	r, err := relearn.Open(ctx, t.store.Dir(), cfg, t.deps.learnerDeps(t.store.Scratch("relearner"), false), c.Full)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := t.relearnSteps(ctx, r, c); err != nil {
		return nil, err
	}
	if saved, err = r.Save(ctx, t.store.Scratch("relearnt")); err != nil || t.deps.Engine.Limits().Repeats {
		return saved, err
	}
	t.drift, err = t.adoptPublished(ctx, c, saved)
	return saved, err
}

// relearnSteps learns the steps since the full checkpoint again, and compares each with its record, and the end with the checkpoint.
// Another outcome is a warning here: a version that is published already is never replaced, and publishing it refuses other weights before
// they take the checkpoint's place.
func (t *trainer) relearnSteps(ctx context.Context, r *relearn.Relearner, c *checkpoint.Checkpoint) error {
	began := t.deps.Now()
	for _, record := range c.Since {
		numbers, err := r.Learn(ctx, t.store.Dir(), record)
		if err != nil {
			return fmt.Errorf("learn a step again: %w", err)
		}
		if d := relearn.Compare(record, checkpoint.Result{Numbers: numbers}).Largest(); d.Key != "" {
			t.otherwise = c
			const message = "a step that was learnt again came out otherwise"
			level := slog.LevelWarn
			if !t.deps.Engine.Limits().Repeats {
				level = slog.LevelDebug // the drift from the published version is what counts
			}
			t.deps.Log.Log(ctx, level, message, "step", record.Step, "number", d.Key, "was", d.Was, "now", d.Now)
		}
		t.deps.After("relearn")
	}
	now, err := r.State()
	if err != nil {
		return err
	}
	if differs := differingState(relearn.StateOf(c), now); len(differs) > 0 {
		t.otherwise = c
		t.deps.Log.Warn("the state that was learnt again is another", "step", c.State.Step, "differs", strings.Join(differs, ", "))
	}
	t.deps.Log.Info("learnt steps again", "steps", len(c.Since), "step", c.State.Step, "took", t.deps.Now().Sub(began))
	return nil
}

// differingState names the parts of two states that differ, but for the networks.
func differingState(was, now *learner.State) (names []string) {
	if !bytes.Equal(was.Random, now.Random) {
		names = append(names, "random state")
	}
	if was.KLCoef != nil && *was.KLCoef != *now.KLCoef {
		names = append(names, "coefficient of the KL term")
	}
	estimator := func(s *learner.State) []byte {
		var b bytes.Buffer
		if s.Estimator != nil {
			_ = json.Compact(&b, s.Estimator.State) // it was decoded or encoded just now
		}
		return b.Bytes()
	}
	if !slices.Equal(estimator(was), estimator(now)) {
		names = append(names, "state of the estimator")
	}
	return names
}
