package learner

import (
	"math"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Stats are the numbers of a step.
type Stats struct {
	// Before is the time of the evaluation before the first update, Update the time of the minibatches.
	Before, Update time.Duration
	// OptimizerSteps counts the optimizer steps of the policy, including skipped steps; Skipped the steps whose gradient was not finite.
	OptimizerSteps, Skipped int64
	// Tokens are the results for each token; nil unless Deps.KeepTokens is set.
	Tokens *Tokens
	// Advantages are the means over the action tokens of each trajectory that was trained on, in the batch's order; NaN where a trajectory
	// has no such token.
	Advantages []float64

	// losses are the loss's own metrics, loss is the sum of the losses of the minibatches; entropy and mismatch are means
	// over sampled tokens.
	losses            loss.Metrics
	loss              float64
	entropy, mismatch loss.Mean
	// offPolicy measures how far the policy at the start of the step is from the policy that sampled; nil when unknown.
	offPolicy map[string]float64
	// sampler compares the policy at the start of the step with the sampler.
	sampler mismatchStats
	// gradNorm is a mean over the optimizer steps that were not skipped, rate over all.
	gradNorm, rate runningMean
	// explained is the share of the returns' variance that the critic explained before the step; nil without a critic. The others are of
	// the critic's optimizer steps.
	explained              *float64
	criticNorm, criticRate runningMean
	criticSkipped          int64
}

func newStats() *Stats { return &Stats{losses: loss.Metrics{}} }

// addStep notes an optimizer step of the policy.
func (s *Stats) addStep(o gpu.StepOptions, done gpu.StepStats) {
	s.OptimizerSteps++
	s.rate.addValue(o.LearningRate)
	if done.Skipped {
		s.Skipped++
	} else {
		s.gradNorm.addValue(done.GradNorm)
	}
}

// addLoss notes a micro-batch.
func (s *Stats) addLoss(b *loss.Batch, r *loss.Result) {
	s.loss += r.Loss
	s.losses.Add(r.Metrics)
	for i, on := range b.Mask {
		if on != 0 {
			s.entropy.Sum += b.Entropies[i]
			s.entropy.Count++
		}
	}
	policy := b.Proximal
	if policy == nil {
		policy = b.Logprobs
	}
	sum, count := mismatchKL(policy, b.Behaviour, b.Mask)
	s.mismatch.Sum += sum
	s.mismatch.Count += count
}

// Metrics are the numbers by their keys.
func (s *Stats) Metrics() map[string]float64 {
	v := map[string]float64{}
	if s.OptimizerSteps > 0 { // else only the critic was trained
		v[metrics.LossPolicy.Name] = s.loss / float64(s.OptimizerSteps)
		v[metrics.PolicyEntropy.Name] = s.entropy.Value()
		v[metrics.PolicyMismatchKL.Name] = s.mismatch.Value()
		v[metrics.OptimizerGradNorm.Name] = s.gradNorm.Value()
		v[metrics.OptimizerLearningRate.Name] = s.rate.Value()
		v[metrics.OptimizerSkipped.Name] = float64(s.Skipped)
	}
	if s.explained != nil {
		v[metrics.CriticExplainedVariance.Name] = *s.explained
		v[metrics.CriticLearningRate.Name] = s.criticRate.Value()
	}
	if s.criticNorm.Count > 0 || s.criticSkipped > 0 {
		v[metrics.CriticGradNorm.Name] = s.criticNorm.Value()
		v[metrics.CriticSkipped.Name] = float64(s.criticSkipped)
	}
	for name, mean := range s.losses {
		v[metrics.Loss(name)] = mean.Value()
	}
	s.sampler.writeMetrics(v)
	for name, x := range s.offPolicy {
		v[metrics.OffPolicy(name)] = x
	}
	return v
}

// runningMean gathers a mean.
type runningMean struct{ loss.Mean }

func (a *runningMean) addValue(x float64) {
	a.Sum += x
	a.Count++
}

// mismatchKL estimates KL(behaviour || policy) a token by k3 = exp(d) - 1 - d with d = policy - behaviour
// (Schulman 2020): never negative, and the measure of how far sampling and training are apart.
func mismatchKL(policy, behaviour []float64, mask []uint8) (sum, count float64) {
	for i, m := range mask {
		if m != 0 {
			d := max(-20, min(20, policy[i]-behaviour[i]))
			sum += math.Exp(d) - 1 - d
			count++
		}
	}
	return sum, count
}
