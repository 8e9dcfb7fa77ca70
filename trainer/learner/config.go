package learner

import (
	"slices"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
	"github.com/weir-rl/weir/trainer/stats"
)

// Config is everything that can be chosen about learning from a batch.
type Config struct {
	// Steps is the policy version at which the run is done. Defaults to 60.
	Steps int64 `koanf:"steps"`
	// Seed fixes the shuffling of minibatches, the choices of the selection, and tickets' seeds; a run's run.seed sets it.
	// Defaults to 1.
	Seed uint64 `koanf:"-"`
	// BatchGroups is how many groups (prompts) a step trains on. Defaults to 32.
	BatchGroups int `koanf:"batch_groups"`
	// MaskTools keeps what tools returned out of the loss. Turning it off trains on every token, to show what the
	// mask is for. Defaults to true.
	MaskTools bool `koanf:"mask_tools"`

	// Epochs is how often a batch is gone over. Defaults to 1.
	Epochs int `koanf:"epochs"`
	// Minibatches is the number of optimizer steps an epoch; a step that is short of groups takes fewer, of the same
	// size. Defaults to 4.
	Minibatches int `koanf:"minibatches"`
	// MicroTokens bounds the tokens of one forward and backward; the results do not depend on it but for
	// rounding. Defaults to 8192.
	MicroTokens int `koanf:"micro_tokens"`

	// Proximal is how the policy at the start of the step is known, which ratios are taken against: recompute, by a
	// forward pass, or, to save it, between the sampling and the current policy by loglinear, linear or rollout
	// (A-3PO). Defaults to recompute.
	Proximal string `koanf:"proximal"`

	Selection Selection `koanf:"selection"`
	Optimizer Optimizer `koanf:"optimizer"`
	Critic    Critic    `koanf:"critic"`
	Advantage Advantage `koanf:"advantage"`
	// Loss is what the policy is trained on. Its name defaults to "decoupled_ppo".
	Loss      loss.Config `koanf:"loss"`
	ColdStart ColdStart   `koanf:"cold_start"`
}

// Optimizer is AdamW and its schedule.
type Optimizer struct {
	// LearningRate is the peak rate. Defaults to 1e-4.
	LearningRate float64 `koanf:"learning_rate"`
	// Schedule is constant, linear or cosine. Defaults to constant.
	Schedule string `koanf:"schedule"`
	// WarmupSteps rise linearly to the peak. Defaults to 0.
	WarmupSteps int64 `koanf:"warmup_steps"`
	// FinalRatio is the share of the peak that linear and cosine end with. Defaults to 0.1.
	FinalRatio float64 `koanf:"final_ratio"`
	// Beta1, Beta2 and Epsilon are Adam's. Default to 0.9, 0.95 and 1e-8.
	Beta1   float64 `koanf:"beta1"`
	Beta2   float64 `koanf:"beta2"`
	Epsilon float64 `koanf:"epsilon"`
	// WeightDecay is decoupled and applies to matrices. Defaults to 0.
	WeightDecay float64 `koanf:"weight_decay"`
	// ClipNorm bounds the gradient's global norm; 0 does not clip. Defaults to 1.
	ClipNorm float64 `koanf:"clip_norm"`
}

// What a critic can be.
const (
	CriticNone = "none"
	CriticHead = "head"
	CriticOwn  = "own"
)

// Critic says what estimates the values of states, for the advantages that need them, and how it is trained. Its loss
// is trainer.loss.value.
type Critic struct {
	// Network is none; head, a value head on the policy's trunk; or own, a network beside the policy's, which is not
	// published. Defaults to "none".
	Network string `koanf:"network"`
	// Folder is a Hugging Face folder that a network of its own starts from; "" starts from the policy's version 0. A
	// value head that is not there starts at 0. Defaults to "".
	Folder string `koanf:"folder"`
	// WarmupSteps is how many of the run's first steps train the critic alone: the versions up to that one have the
	// weights of version 0. A value head is then trained without its trunk. Defaults to 0.
	WarmupSteps int64 `koanf:"warmup_steps"`
	// Optimizer is the critic's own, with its schedule over all of the run's steps. Of a value head's, the rate and the
	// schedule alone count after the warm-up: one step then moves it and the policy, under the policy's optimizer.
	Optimizer Optimizer `koanf:"optimizer"`
}

// DefaultCritic is none.
func DefaultCritic() Critic {
	return Critic{Network: CriticNone, Optimizer: Optimizer{
		LearningRate: 1e-3, Schedule: ScheduleConstant, FinalRatio: 0.1, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1,
	}}
}

// Selection says what of a batch is trained on. Groups that are not kept are replaced by other prompts.
type Selection struct {
	selection.Groups `koanf:",squash"`
	// Overlong shapes the reward of long rollouts, or takes those that were cut off out of the loss.
	Overlong selection.Overlong `koanf:"overlong"`
	// Resample trains on some of each group's samples.
	Resample selection.Resample `koanf:"resample"`
	// Accumulate counts a step in rows.
	Accumulate selection.Accumulate `koanf:"accumulate"`
	// DropVoid takes trajectories with a turn that neither called a tool nor answered out of the loss. Defaults
	// to false.
	DropVoid bool `koanf:"drop_void"`
}

// Advantage names the estimator and its options.
type Advantage struct {
	// Name is one of advantage.Names. Defaults to "grpo".
	Name string `koanf:"name"`
	// Bootstrap says after which rollouts the critic's value stands for what would have followed, in gae, gae_step and
	// bilevel with a critic: none; timeout, those that the clock cut off; or limits, those that any limit did. Limits of
	// turns and tokens are part of the task, under which the policy is tested: what they cut off has ended. Of the clock no
	// state tells. Defaults to timeout.
	Bootstrap string `koanf:"bootstrap"`
	// Normalize shifts and scales the advantages once more, over the batch or within groups of rows (AReaL's adv_norm). It
	// does not replace the estimator's own whitening: turn that off beside it.
	Normalize         stats.Normalization `koanf:"normalize"`
	advantage.Options `koanf:",squash"`
	// Foreign are the estimators of the program itself, which Name may name as it names the stock ones; no file and no flag
	// sets it. Defaults to none.
	Foreign []advantage.Foreign `koanf:"-"`
}

// Facts are those of the estimator under its options.
func (a Advantage) Facts() advantage.Facts { return advantage.FactsOf(a.Name, a.Options, a.Foreign...) }

// ProximalRecompute computes the proximal policy's log-probabilities by a forward pass.
const ProximalRecompute = "recompute"

// DefaultConfig are the settings of the demonstration.
func DefaultConfig() Config {
	c := Config{
		Steps: 60, Seed: 1, BatchGroups: 32, MaskTools: true,
		Epochs: 1, Minibatches: 4, MicroTokens: 8192, Proximal: ProximalRecompute,
		Optimizer: Optimizer{
			LearningRate: 1e-4, Schedule: ScheduleConstant, FinalRatio: 0.1,
			Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1,
		},
		Selection: Selection{
			Groups: selection.DefaultGroups(), Overlong: selection.DefaultOverlong(),
			Resample: selection.DefaultResample(), Accumulate: selection.DefaultAccumulate(),
		},
		Critic:    DefaultCritic(),
		Advantage: Advantage{Name: "grpo", Bootstrap: BootstrapTimeout, Normalize: stats.DefaultNormalization(), Options: advantage.DefaultOptions()},
		Loss:      loss.DefaultConfig(),
		ColdStart: DefaultColdStart(),
	}
	c.Advantage.StdEpsilon = 0.2
	c.Loss.Name = "decoupled_ppo"
	return c
}

// minibatches is the number of optimizer steps an epoch of a batch with this many groups.
func (c Config) minibatches(groups int) int {
	return max(1, (c.Minibatches*groups+c.BatchGroups-1)/c.BatchGroups)
}

// EpisodeAgents are the roles whose agents are compared within their episode; nil where the estimator compares none there.
func (c Config) EpisodeAgents() []string {
	if !slices.Contains(c.Advantage.Facts().Reads, "episode_agents") {
		return nil
	}
	return c.Advantage.EpisodeAgents
}

// Baseline says that groups have a greedy rollout to be compared with.
func (c Config) Baseline() bool {
	return slices.Contains(c.Advantage.Facts().Requires, "Baselines")
}
