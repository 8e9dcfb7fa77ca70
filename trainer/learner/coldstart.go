package learner

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// ColdStart is a supervised start: the policy imitates demonstrations before it learns by reinforcement. Its
// result is policy version 0.
type ColdStart struct {
	// Steps is the number of optimizer steps; 0 skips the cold start.
	Steps int64 `koanf:"steps" min:"0"`
	// Enough ends the cold start before its last step when a step's mean loss is below it, in nats a token: a policy that imitates
	// perfectly gives the same answer each time, and leaves nothing to compare. 0 never ends the cold start early.
	Enough float64 `koanf:"enough" default:"0.02" min:"0"`
	// Batch is the number of demonstrations a step.
	Batch int `koanf:"batch" default:"32" above:"0"`
	// MicroTokens bounds the tokens of a forward and backward pass.
	MicroTokens int `koanf:"micro_tokens" default:"8192" above:"0"`
	// ReportEvery is the number of steps between reports of the loss.
	ReportEvery int64     `koanf:"report_every" default:"20" above:"0"`
	Optimizer   Optimizer `koanf:"optimizer" overrides:"trainer.optimizer"`
}

// DefaultColdStart has the defaults.
func DefaultColdStart() ColdStart {
	c := check.Default[ColdStart]()
	c.Optimizer.LearningRate, c.Optimizer.Schedule, c.Optimizer.WarmupSteps, c.Optimizer.Beta2 = 4e-3, ScheduleLinear, 30, 0.95
	return c
}

// Demonstrations are the input of the supervised start. The i-th is always the same. mask is 1 at the tokens to be imitated, and 0 at the
// first token.
type Demonstrations interface {
	Demonstration(i uint64) (tokens []int32, mask []uint8)
}

// Imitate trains the engine on demonstrations 0, 1, 2, ... by cross-entropy on the masked tokens alone, and clears the optimizer's moments
// at the end, since the demonstrations' gradient differs from the rewards' gradient. The same engine and demonstrations give the same
// weights. report is called with the mean loss in nats a token since the last call; it may be nil.
func Imitate(ctx context.Context, c ColdStart, engine gpu.Engine, demos Demonstrations, report func(step int64, loss float64)) error {
	var sum, tokens float64
	for step := range c.Steps {
		rows, err := demonstrationRows(demos, uint64(step)*uint64(c.Batch), c.Batch)
		if err != nil {
			return fmt.Errorf("cold start step %d: %w", step, err)
		}
		total, count, err := imitateStep(ctx, c, engine, rows, step)
		if err != nil {
			return fmt.Errorf("cold start step %d: %w", step, err)
		}
		sum, tokens = sum+total, tokens+count
		enough := total/count < c.Enough
		if report != nil && ((step+1)%c.ReportEvery == 0 || step+1 == c.Steps || enough) {
			report(step+1, sum/tokens)
			sum, tokens = 0, 0
		}
		if enough {
			break
		}
	}
	return engine.ResetOptimizer(ctx)
}

// imitateStep is an optimizer step: loss = -sum(mask * logprob) / sum(mask) over the whole batch.
func imitateStep(ctx context.Context, c ColdStart, engine gpu.Engine, rows *batch.Rows, step int64) (total, count float64, err error) {
	all := rows.All()
	count = float64(rows.ActionTokens(all))
	parts := engineBatches(rows, batch.Pack(all, rows.Length, limitBudget(c.MicroTokens, engine)))
	err = engine.Accumulate(ctx, parts, func(i int, out *gpu.Outputs) (*gpu.Gradients, error) {
		grad := make([]float32, len(parts[i].Tokens))
		for k, m := range parts[i].Mask {
			if m != 0 {
				total -= float64(out.Logprobs[k])
				grad[k] = float32(-1 / count)
			}
		}
		return &gpu.Gradients{Logprobs: grad}, nil
	})
	if err != nil {
		return 0, 0, err
	}
	if _, err := engine.Step(ctx, c.Optimizer.stepOptions(step, c.Steps)); err != nil {
		return 0, 0, fmt.Errorf("optimizer step: %w", err)
	}
	return total, count, nil
}

// demonstrationRows lays out n demonstrations from the i-th on.
func demonstrationRows(demos Demonstrations, i uint64, n int) (*batch.Rows, error) {
	b := &batch.Batch{Groups: make([]batch.Taken, 1)}
	for k := range uint64(n) {
		tokens, mask := demos.Demonstration(i + k)
		if len(tokens) != len(mask) || len(mask) == 0 || mask[0] != 0 {
			return nil, fmt.Errorf("demonstration %d: %d tokens with a mask of %d whose first must be 0", i+k, len(tokens), len(mask))
		}
		s := schemas.Segment{
			Tokens: tokens, ActionMask: mask, Temperature: 1,
			Logprobs: make(schemas.Float32s, len(tokens)), Versions: make(schemas.Runs, len(tokens)),
		}
		b.Groups[0].Members = append(b.Groups[0].Members, batch.Member{Trajectory: &schemas.Trajectory{Segments: []schemas.Segment{s}}})
	}
	rows := batch.NewRows(b)
	if rows.Len() == 0 {
		return nil, fmt.Errorf("demonstrations %d to %d have no token to imitate", i, i+uint64(n)-1)
	}
	return rows, nil
}
