package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A trial episode may last trialTimeout. It is tried again for trialPatience: a service may still be starting.
const (
	trialTimeout  = 30 * time.Second
	trialPatience = 10 * time.Second
)

// tryTasks runs an episode of each task before anything of the run starts: a fault of an agent, a tool or a reward is an error then, and
// not a run that gets nowhere. No engine is there yet: a stand-in for the policy repeats tokens of its context. A run that has a checkpoint,
// tools on workers and agents that come by themselves are not tried.
func tryTasks(ctx context.Context, cfg *config.Config, c *Course, log *slog.Logger) error {
	steps, err := checkpoint.Steps(cfg.Trainer.Checkpoint.Dir)
	if !cfg.Run.Trial || cfg.OnWorkers() || err == nil && len(steps) > 0 {
		return nil
	}
	if c.spaces.Claimed() {
		if _, err := c.spaces.Ready(ctx); err != nil {
			return config.Invalid(err)
		}
	}
	var faults []error
	for _, t := range c.Tasks {
		if t.Recording != nil {
			continue
		}
		if awaited, ok := t.agent.(agents.Awaited); ok && awaited.Awaited() {
			continue
		}
		if err := c.tryTask(ctx, cfg, t, log.With("task", t.Name)); err != nil {
			faults = append(faults, fmt.Errorf("trial episode of task %s: %w", t.Name, err))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w\nNothing was started. Mend it, or start without a trial by --run.trial=false", errors.Join(faults...))
	}
	return nil
}

// tryTask runs the trial episode of a task. It returns what would fail in training too.
func (c *Course) tryTask(ctx context.Context, cfg *config.Config, t *Task, log *slog.Logger) error {
	sample := t.Data.Sample(tasks.Train, 1, cfg.Run.Seed)
	if len(sample) == 0 {
		return nil
	}
	within := trialTimeout
	if own := cfg.Trainer.Limits.Timeout; own > 0 {
		within = min(within, own)
	}
	patience := time.Now().Add(trialPatience)
	for attempt := 1; ; attempt++ {
		policy := &trialPolicy{}
		env, limits := c.askedEnvironment(t, policy, Question{Timeout: within})
		ticket := &schemas.Ticket{
			Run: cfg.Run.Name, ID: fmt.Sprintf("trial-%s-%d", t.Name, attempt), Group: "trial-" + t.Name, GroupSize: 1, Task: t.Name,
			Prompt: sample[0], Seed: cfg.Run.Seed, Limits: limits,
			Sampling: schemas.Sampling{Temperature: cfg.Trainer.Sampling.Temperature, MaxTokens: cfg.Trainer.Sampling.MaxTokens},
		}
		trajectory, _, err := producers.Rollout(ctx, ticket, env)
		switch {
		case err == nil:
			if trajectory.Stop == schemas.StopTimeout {
				c.trialNotes = append(c.trialNotes, slowTrial(t.Name, policy.sampled.Load() > 0, within))
			}
			if err := trainerBounds(cfg).CheckTrajectory(trajectory); err != nil {
				return fmt.Errorf("the trainer would refuse such episodes as %s: %w", schemas.ReasonPoisoned, err)
			}
			log.Info("the trial episode ended", "reward", trajectory.Reward, "stop", trajectory.Stop, "turns", len(trajectory.Turns))
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case policy.excuses(err):
			if producers.TimedOut(err) {
				c.trialNotes = append(c.trialNotes, slowTrial(t.Name, policy.sampled.Load() > 0, within))
			}
			log.Warn("the trial episode failed, perhaps as no model wrote its text: the run starts", "err", err)
			return nil
		case remote.IsUnusable(err), !errors.Is(err, producers.ErrUnavailable), time.Now().After(patience):
			return err
		}
		if cause := restBefore(ctx, scoreRetryDelay); cause != nil {
			return cause
		}
	}
}

// trainerBounds are the bounds by which the trainer refuses a trajectory.
func trainerBounds(cfg *config.Config) batch.Bounds {
	return batch.Bounds{Reward: cfg.Trainer.Limits.MaxReward, Segments: cfg.Trainer.Limits.MaxSegments}
}

// slowTrial is the note about a trial episode that ran into its time limit. asked reports whether its agent asked the policy.
func slowTrial(task string, asked bool, within time.Duration) string {
	did := "asked the policy, and then did"
	if !asked {
		did = "did"
	}
	return fmt.Sprintf("trial episode of task %s: the agent %s not end within %s: an endless loop, or a slow tool? "+
		"The run starts; trainer.limits.timeout ends each such episode", task, did, within)
}

// TrialNotes are what the trial episodes showed that is no fault, a line each.
func (c *Course) TrialNotes() []string { return c.trialNotes }

// restBefore waits, or returns why ctx ended before.
func restBefore(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// trialPolicy stands in for the policy: it samples tokens of its context, and ends a turn where it may.
type trialPolicy struct{ sampled atomic.Int64 }

// trialTokens bounds a turn of the stand-in.
const trialTokens = 4

// Generate repeats the last tokens of the context, and then samples the first of the stop tokens.
func (p *trialPolicy) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	n := min(trialTokens, r.MaxTokens, len(r.Tokens))
	out := &generate.Result{Tokens: append([]int32{}, r.Tokens[len(r.Tokens)-n:]...), Stop: schemas.GenerateLength, Engine: "trial"}
	if len(r.StopTokens) > 0 {
		out.Tokens[n-1], out.Stop = r.StopTokens[0], schemas.GenerateStopToken
	}
	out.Logprobs, out.Versions = make([]float32, n), make([]int32, n)
	p.sampled.Add(int64(n))
	return out, nil
}

// excuses reports whether an agent failed at the stand-in's text, or was late: with a model it may not. An answer of a wrong form is the
// agent's own.
func (p *trialPolicy) excuses(err error) bool {
	part, named := errors.AsType[*producers.PartError](err)
	byAgent := named && part.Part == producers.PartAgent && p.sampled.Load() > 0
	return byAgent && !remote.IsUnusable(err) || producers.TimedOut(err)
}
