package shadow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/metrics"
)

// stepMetrics are the numbers of a step.
func (s *shadow) stepMetrics(l *learntStep) map[string]float64 {
	v := l.stats.Metrics()
	measureBatch(v, l.batch)
	measureDistance(v, l.stats.Tokens)
	metrics.TimeOldPolicy.Set(v, l.stats.Before.Seconds())
	metrics.TimeUpdate.Set(v, l.stats.Update.Seconds())
	metrics.ShadowRefused.Set(v, float64(len(l.rejected)))
	metrics.ShadowMissed.Set(v, float64(s.counts.missed))
	metrics.ShadowEmpty.Set(v, float64(s.counts.empty))
	if steps, err := checkpoint.Steps(s.deps.Run); err == nil && len(steps) > 0 {
		metrics.ShadowBehind.Set(v, float64(max(0, steps[0]-s.step)))
	}
	return v
}

// measureBatch puts the numbers of a batch under the run's keys.
func measureBatch(v map[string]float64, b *batch.Batch) {
	var reward, stale, tokens, n, trained float64
	for _, g := range b.Groups {
		for _, m := range g.Members {
			reward, n = reward+m.Return, n+1
			if m.PassedOver {
				continue
			}
			trained++
			tokens += float64(m.Trajectory.Tokens())
			stale = max(stale, float64(b.Version-m.Oldest))
		}
	}
	metrics.RewardMean.Set(v, reward/n)
	metrics.StalenessMax.Set(v, stale)
	metrics.BatchGroups.Set(v, float64(len(b.Groups)))
	metrics.BatchTrajectories.Set(v, trained)
	metrics.BatchTokens.Set(v, tokens)
}

// measureDistance compares the shadow at the start of a step with the policies of the run that sampled, at the tokens that are trained on:
// with d the difference of their log-probabilities, the mean of its size, the divergence by k3 = exp(d) - 1 - d (Schulman 2020), and the
// effective sample size of the weights exp(d), as a share of the tokens.
func measureDistance(v map[string]float64, t *learner.Tokens) {
	if t == nil || t.Start == nil {
		return
	}
	var n, absolute, kl, weight, weights2 float64
	for i, on := range t.Rows.Mask {
		if on == 0 {
			continue
		}
		d := max(-20, min(20, t.Start[i]-t.Rows.Behaviour[i]))
		w := math.Exp(d)
		n, absolute, kl = n+1, absolute+math.Abs(d), kl+w-1-d
		weight, weights2 = weight+w, weights2+w*w
	}
	if n == 0 {
		return
	}
	metrics.ShadowLogprob.Set(v, absolute/n)
	metrics.ShadowKL.Set(v, kl/n)
	metrics.ShadowESS.Set(v, weight*weight/weights2/n)
}

// hasRunWeights reports whether the run has a full checkpoint of the shadow's step.
func (s *shadow) hasRunWeights() bool {
	_, err := os.Stat(filepath.Join(checkpoint.StepDir(s.deps.Run, s.step), gpu.ConfigFile))
	return err == nil
}

// measureWeights compares the weights of the shadow with those of the run at the same step. The run may remove its checkpoint meanwhile:
// then the step has no such number.
func (s *shadow) measureWeights(ctx context.Context, v map[string]float64) {
	distance, err := compareWeights(ctx, s.store.Path(s.step), checkpoint.StepDir(s.deps.Run, s.step))
	switch {
	case err == nil:
		metrics.ShadowWeights.Set(v, distance)
	case !errors.Is(err, fs.ErrNotExist):
		s.deps.Log.Warn("the weights of run and shadow were not compared", "step", s.step, "err", err)
	}
}

// weightPiece is how many numbers of a tensor are compared at once.
const weightPiece = 1 << 16

// compareWeights is the length of the difference between the weights of two checkpoints, in relation to the length of the second's.
func compareWeights(ctx context.Context, a, b string) (_ float64, err error) {
	var open [2]*safetensors.Folder
	for i, dir := range []string{a, b} {
		if open[i], err = safetensors.OpenFolder(dir, gpu.WeightsFile); err != nil {
			return 0, fmt.Errorf("compare weights: %w", err)
		}
		defer func() { err = errors.Join(err, open[i].Close()) }()
	}
	x, y := make([]float32, weightPiece), make([]float32, weightPiece)
	var difference, size float64
	for _, t := range open[1].Tensors() {
		for at, left := 0, t.Elements(); left > 0; {
			n := min(left, weightPiece)
			if err := errors.Join(open[0].ReadPart(ctx, t.Name, at, x[:n]), open[1].ReadPart(ctx, t.Name, at, y[:n])); err != nil {
				return 0, fmt.Errorf("compare weights: %w", err)
			}
			for i := range n {
				d := float64(x[i]) - float64(y[i])
				difference, size = difference+d*d, size+float64(y[i])*float64(y[i])
			}
			at, left = at+n, left-n
		}
	}
	if size == 0 {
		return 0, nil
	}
	return math.Sqrt(difference / size), nil
}
