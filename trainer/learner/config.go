package learner

import (
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
	"github.com/weir-rl/weir/trainer/stats"
)

// Config configures learning from a batch.
type Config struct {
	// Steps is the policy version at which the run is done.
	Steps int64 `koanf:"steps" default:"30" above:"0"`
	// Seed fixes the shuffling of minibatches, the choices of the selection, and tickets' seeds; a run's run.seed sets it.
	Seed uint64 `koanf:"-"`
	// BatchGroups is how many groups (prompts) a step trains on.
	BatchGroups int `koanf:"batch_groups" default:"32" above:"0"`
	// MaskTools keeps the output of tools out of the loss. Turning it off trains on every token once, to show the effect of the mask; unless
	// advantage.tokens says otherwise, advantages are then estimated over every token too.
	MaskTools bool `koanf:"mask_tools" default:"true"`

	// Epochs is the number of passes over a batch.
	Epochs int `koanf:"epochs" default:"1" above:"0"`
	// Minibatches is the number of optimizer steps an epoch; a step that is short of groups takes fewer, of the same size.
	Minibatches int `koanf:"minibatches" default:"4" above:"0"`
	// MicroTokens bounds the tokens of a forward and backward pass; the results do not depend on it except for rounding.
	MicroTokens int `koanf:"micro_tokens" default:"8192" above:"0"`

	// Proximal is how the log-probabilities of the policy at the start of the step are computed, against which ratios are taken: recompute
	// runs a forward pass; loglinear, linear and rollout approximate them between the sampling and the current policy (A-3PO) and save that
	// pass.
	Proximal string `koanf:"proximal" default:"recompute" oneof:"recompute loglinear linear rollout"`

	Selection Selection `koanf:"selection"`
	Optimizer Optimizer `koanf:"optimizer"`
	Critic    Critic    `koanf:"critic"`
	Advantage Advantage `koanf:"advantage"`
	// Loss is the policy's loss. Its name defaults to "decoupled_ppo".
	Loss      loss.Config `koanf:"loss"`
	ColdStart ColdStart   `koanf:"cold_start"`
}

// Optimizer is AdamW and its schedule.
type Optimizer struct {
	// LearningRate is the peak rate. With model.folder the default is 1e-6, of adapters (model.lora) 1e-4.
	LearningRate float64 `koanf:"learning_rate" default:"0.0002" above:"0"`
	// Schedule is constant, linear or cosine.
	Schedule string `koanf:"schedule" default:"constant" oneof:"constant linear cosine"`
	// WarmupSteps rise linearly to the peak.
	WarmupSteps int64 `koanf:"warmup_steps" min:"0"`
	// FinalRatio is the share of the peak that linear and cosine end with.
	FinalRatio float64 `koanf:"final_ratio" default:"0.1" min:"0" max:"1"`
	// Beta1, Beta2 and Epsilon are Adam's. A small beta2 lets an update follow the few groups that have a gradient late in a run; a large
	// beta2 lets it grow to (1-beta1)/sqrt(1-beta2) times the rate where gradients grow at once, which is 1 at the defaults.
	Beta1   float64 `koanf:"beta1" default:"0.9" min:"0" below:"1"`
	Beta2   float64 `koanf:"beta2" default:"0.99" min:"0" below:"1"`
	Epsilon float64 `koanf:"epsilon" default:"1e-08" above:"0"`
	// WeightDecay is decoupled and applies to matrices.
	WeightDecay float64 `koanf:"weight_decay" min:"0"`
	// ClipNorm bounds the gradient's global norm; 0 does not clip.
	ClipNorm float64 `koanf:"clip_norm" default:"1" min:"0"`
}

// The kinds of critic.
const (
	CriticNone = "none"
	CriticHead = "head"
	CriticOwn  = "own"
)

// Critic configures the estimator of the values of states, for the advantages that need values, and its training. Its loss is
// trainer.loss.value.
type Critic struct {
	// Network is none; head, a value head on the policy's trunk; or own, a network beside the policy's, which is not published.
	Network string `koanf:"network" default:"none" oneof:"none head own"`
	// Folder is a Hugging Face folder that a network of its own starts from; "" starts from the policy's version 0. A missing value head
	// starts at 0.
	Folder string `koanf:"folder"`
	// WarmupSteps is how many of the run's first steps train the critic alone: the versions up to that step have the weights of version 0.
	// A value head is then trained without its trunk.
	WarmupSteps int64 `koanf:"warmup_steps" min:"0"`
	// Optimizer is the critic's own, with its schedule over all of the run's steps. For a value head only the rate and the schedule count
	// after the warm-up: a single step then moves the head and the policy, under the policy's optimizer.
	Optimizer Optimizer `koanf:"optimizer" overrides:"trainer.optimizer"`
}

// DefaultCritic is none.
func DefaultCritic() Critic {
	c := check.Default[Critic]()
	c.Optimizer.LearningRate = 1e-3
	return c
}

// Selection decides which samples of a batch are trained on. Groups that are not kept are replaced by other prompts.
type Selection struct {
	selection.Groups `koanf:",squash"`
	// Overlong shapes the reward of long rollouts, or takes rollouts that were cut off out of the loss.
	Overlong selection.Overlong `koanf:"overlong"`
	// Resample trains on some of each group's samples.
	Resample selection.Resample `koanf:"resample"`
	// Accumulate counts a step in rows.
	Accumulate selection.Accumulate `koanf:"accumulate"`
	// DropVoid takes trajectories with a turn that neither called a tool nor answered out of the loss.
	DropVoid bool `koanf:"drop_void"`
}

// Advantage names the estimator and holds its keys.
type Advantage struct {
	// Name is one of advantage.Names.
	Name string `koanf:"name" default:"grpo"`
	// Tokens are the tokens that the estimator runs over, and that a critic learns at: trained, the tokens that the policy is trained on,
	// which mask_tools selects; sampled, the tokens that the policy sampled; or all, prompts and the output of tools too. Where the policy
	// is trained on other tokens than these, those have advantage 0. Agent-R1 calls this its advantage mask, and mask_tools its loss mask.
	Tokens string `koanf:"tokens" default:"trained" oneof:"trained sampled all"`
	// Bootstrap selects the rollouts after which the critic's value stands for the missing rest, in gae, gae_step and bilevel with a
	// critic: none; timeout, rollouts that the clock cut off; or limits, rollouts that any limit cut off. Limits of turns and tokens are
	// part of the task, under which the policy is tested: a rollout that they cut off has ended. The clock is not part of any state.
	Bootstrap string `koanf:"bootstrap" default:"timeout" oneof:"none timeout limits"`
	// Normalize shifts and scales the advantages once more, over the batch or within groups of rows (AReaL's adv_norm). It
	// does not replace the estimator's own whitening: turn that off beside it.
	Normalize stats.Normalization `koanf:"normalize"`
	// NormalizeProcess divides process rewards, which stand before a trajectory's last action token, by their largest return in size over
	// the batch (PRIME, Agent-R1).
	NormalizeProcess bool `koanf:"normalize_process"`
	// Own are the estimator's own keys: a pointer to its struct, as [advantage.Keys] returns it. Nil is its defaults.
	Own any `koanf:",squash"`
	// Foreign are the estimators of the program itself, which Name may name like the stock estimators; no file and no flag sets it.
	Foreign []advantage.Foreign `koanf:"-"`
}

// The tokens that advantages are estimated over.
const (
	TokensTrained = "trained"
	TokensSampled = "sampled"
	TokensAll     = "all"
)

// Facts are the facts of the estimator under its keys.
func (a Advantage) Facts() advantage.Facts { return advantage.FactsOf(a.Name, a.Own, a.Foreign...) }

// normalizes reports whether the advantages are shifted or scaled once more.
func (a Advantage) normalizes() bool {
	return a.Normalize.Mean != stats.LevelNone || a.Normalize.Std != stats.LevelNone
}

// sameOverAnyTokens reports whether sampled tokens have the same advantage whichever tokens the estimator runs over.
func (a Advantage) sameOverAnyTokens() bool { return a.Facts().OverAnyTokens && !a.normalizes() }

// New makes the estimator.
func (a Advantage) New() (advantage.Estimator, error) {
	e, err := advantage.New(a.Name, a.Own, a.Foreign...)
	if err == nil && a.NormalizeProcess {
		e = advantage.NormalizeProcessOf(e)
	}
	return e, err
}

// ProximalRecompute computes the proximal policy's log-probabilities by a forward pass.
const ProximalRecompute = "recompute"

// DefaultConfig are the settings of the demonstration.
func DefaultConfig() Config {
	c := check.Default[Config]()
	c.Seed, c.Critic, c.ColdStart = 1, DefaultCritic(), DefaultColdStart()
	return c
}

// minibatchCount returns the number of optimizer steps an epoch of a batch with this many groups.
func (c Config) minibatchCount(groups int) int {
	return max(1, (c.Minibatches*groups+c.BatchGroups-1)/c.BatchGroups)
}

// EpisodeAgents are the roles whose agents are compared within their episode; nil where the estimator compares no agents there.
func (c Config) EpisodeAgents() []string {
	if keys, ok := c.Advantage.Own.(*advantage.HierarchicalGRPO); ok && c.Advantage.Name == "hierarchical_grpo" {
		return keys.EpisodeAgents
	}
	return nil
}

// creditsTools reports whether advantages are estimated over the output of tools too.
func (c Config) creditsTools() bool {
	return c.Advantage.Tokens == TokensAll || c.Advantage.Tokens == TokensTrained && !c.MaskTools
}

// StateValues reports whether trajectories have to bring the values of their states.
func (c Config) StateValues() bool {
	return slices.Contains(c.Advantage.Facts().Requires, "StateValues")
}

// Baseline reports whether groups have a greedy rollout to be compared with.
func (c Config) Baseline() bool {
	return slices.Contains(c.Advantage.Facts().Requires, "Baselines")
}
