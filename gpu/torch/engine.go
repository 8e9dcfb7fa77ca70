package torch

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// Engine is a gpu.Engine whose model lies in a group of PyTorch processes. They start with the first call that needs them.
type Engine struct {
	backend Backend
	cfg     gpu.Config
	// layout are the model's tensors, trained the trained tensors: they differ where there are adapters.
	layout, trained []gpu.Tensor

	group *group
	// whole is true where the group has weights.
	whole bool
	// origin is the folder of the first Import, whose weights are the starting weights; "" draws them.
	origin string
	// base is the hash of the weights that adapters are trained beside, "" without adapters; halves is true where each of their
	// numbers is a bfloat16. folded is true where they are the weights of a folder whose adapters, trained on other weights,
	// were added to them.
	base   string
	halves bool
	folded bool
	// gone is why the last group ended, until Discard or Import.
	gone error
}

var (
	_ gpu.Engine   = (*Engine)(nil)
	_ gpu.Adapting = (*Engine)(nil)
)

// Config describes the model.
func (e *Engine) Config() gpu.Config { return e.cfg }

// Limits of the engine: each rank runs a part at once.
func (e *Engine) Limits() gpu.Limits {
	cfg := e.backend.Config
	return gpu.Limits{
		Ranks: cfg.Ranks, MaxTokens: cfg.MaxTokens, ProbSquares: true,
		Repeats: cfg.Deterministic && cfg.Ranks == 1, // the order of sums over several ranks is the library's
	}
}

// Describe names the devices that the engine runs on, "" before it has started.
func (e *Engine) Describe() string {
	if e.group == nil {
		return ""
	}
	return e.group.String()
}

// Evaluate runs parts through the model, a round at a time.
func (e *Engine) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(i int, o *gpu.Outputs) error) error {
	err := e.runRounds(ctx, parts, false, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) { return nil, each(i, o) })
	return nameError("evaluate", err)
}

// Accumulate runs parts through the model and back, a round at a time.
func (e *Engine) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(i int, o *gpu.Outputs) (*gpu.Gradients, error)) error {
	return nameError("accumulate", e.runRounds(ctx, parts, true, each))
}

// callbackError is an error of the caller's own, which goes back as it is.
type callbackError struct{ err error }

func (e callbackError) Error() string { return e.err.Error() }

func nameError(what string, err error) error {
	var own callbackError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.err
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (e *Engine) runRounds(ctx context.Context, parts []*gpu.Batch, keep bool, each func(i int, o *gpu.Outputs) (*gpu.Gradients, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, b := range parts {
		if err := checkPart(e.cfg, b); err != nil {
			return &gpu.PartError{Part: i, Err: err}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	g, err := e.readyGroup(ctx)
	if err != nil {
		return err
	}
	for from := 0; from < len(parts); from += len(g.ranks) {
		r, err := e.beginRound(g, parts, from, keep)
		if err != nil {
			return e.loseGroup(err)
		}
		out, err := e.endRound(ctx, r, parts)
		if err != nil {
			return e.loseGroup(err)
		}
		gradients := make([]*gpu.Gradients, len(out))
		for i, o := range out {
			if gradients[i], err = each(from+i, o); err != nil {
				return callbackError{err}
			}
			if gradients[i] == nil {
				continue
			}
			if err := checkGradients(e.cfg, parts[from+i], gradients[i]); err != nil {
				return &gpu.PartError{Part: from + i, Err: err}
			}
			gradients[i] = ownedGradients(gradients[i], i < len(out)-1)
		}
		if keep {
			if err := e.sendGradients(ctx, g, gradients); err != nil {
				return e.loseGroup(err)
			}
		}
	}
	return nil
}

// ownedGradients copies gradients that the caller may write to again before they are sent.
func ownedGradients(g *gpu.Gradients, needed bool) *gpu.Gradients {
	if !needed {
		return g
	}
	return &gpu.Gradients{
		Logprobs: cloneFloats(g.Logprobs), Entropies: cloneFloats(g.Entropies), Values: cloneFloats(g.Values), Detached: g.Detached,
	}
}

func cloneFloats(x []float32) []float32 {
	if x == nil {
		return nil
	}
	return append(make([]float32, 0, len(x)), x...)
}

// Step adds the ranks' gradients up, clips, and takes a step of AdamW.
func (e *Engine) Step(ctx context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	if err := ctx.Err(); err != nil {
		return gpu.StepStats{}, err
	}
	if err := o.Validate(); err != nil {
		return gpu.StepStats{}, fmt.Errorf("step: %w", err)
	}
	header := map[string]any{"shapes": shapesByName(e.trained), "options": map[string]float64{
		"learning_rate": o.LearningRate, "value_learning_rate": o.ValueLearningRate, "beta1": o.Beta1, "beta2": o.Beta2,
		"epsilon": o.Epsilon, "weight_decay": o.WeightDecay, "clip_norm": o.ClipNorm,
	}}
	frames, err := e.callAll(ctx, "step", header)
	if err != nil {
		return gpu.StepStats{}, fmt.Errorf("step: %w", err)
	}
	return readStepped(frames[0])
}

// Discard clears the gathered gradient. After the loss of a group it lets the engine start anew.
func (e *Engine) Discard(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.group == nil {
		e.gone = nil
		return nil
	}
	if _, err := e.callAll(ctx, "discard", nil); err != nil {
		if !errors.Is(err, gpu.ErrLost) {
			return fmt.Errorf("discard: %w", err)
		}
		e.gone = nil
	}
	return nil
}

// ResetOptimizer lets go of the moments.
func (e *Engine) ResetOptimizer(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := e.callAll(ctx, "reset", nil); err != nil {
		return fmt.Errorf("reset optimizer: %w", err)
	}
	return nil
}

// Close ends the processes.
func (e *Engine) Close() error {
	if e.group != nil {
		e.group.closeGroup()
		e.group = nil
	}
	e.gone = fmt.Errorf("%w: it is closed", gpu.ErrLost)
	return nil
}

// callAll has every rank do an operation on a model with weights.
func (e *Engine) callAll(ctx context.Context, op string, header map[string]any) ([]*frame, error) {
	g, err := e.readyGroup(ctx)
	if err != nil {
		return nil, err
	}
	frames, err := g.callAll(ctx, op, func(int) (map[string]any, []buffer) { return header, nil })
	return frames, e.loseGroup(err)
}

// readyGroup is the group, with weights. If there is none it is started and given the starting weights.
func (e *Engine) readyGroup(ctx context.Context) (*group, error) {
	if err := e.ensureStarted(ctx); err != nil {
		return nil, err
	}
	if e.whole {
		return e.group, nil
	}
	if err := e.loadStart(ctx); err != nil {
		return nil, e.loseGroup(err)
	}
	return e.group, nil
}

// ensureStarted starts the group if there is none.
func (e *Engine) ensureStarted(ctx context.Context) (err error) {
	if e.gone != nil {
		return e.gone
	}
	if e.group == nil {
		e.group, err = startGroup(ctx, e.backend.Config, e.backend.Threads, roleTrainer, e.engineShape())
		e.whole = false
		if err == nil && e.backend.Log != nil {
			e.backend.Log.Info("torch is ready", "engine", e.group.String())
		}
	}
	return err
}

// loseGroup ends the group after an error that left it unusable, and passes the error on.
func (e *Engine) loseGroup(err error) error {
	if err != nil && errors.Is(err, gpu.ErrLost) && e.group != nil {
		e.group.closeGroup()
		e.group, e.whole, e.gone = nil, false, err
	}
	return err
}

// shapesByName are the tensors' shapes by name.
func shapesByName(tensors []gpu.Tensor) map[string][]int {
	out := make(map[string][]int, len(tensors))
	for _, t := range tensors {
		out[t.Name] = t.Shape
	}
	return out
}
