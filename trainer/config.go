package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
	"github.com/weir-rl/weir/trainer/stats"
)

// Config is everything that can be chosen about training.
type Config struct {
	// Steps is the policy version at which the run is done. Defaults to 60.
	Steps int64 `koanf:"steps"`
	// Seed fixes tickets' seeds and the shuffling of minibatches; a run's run.seed sets it. Defaults to 1.
	Seed uint64 `koanf:"-"`

	// BatchGroups is how many groups (prompts) a step trains on. Defaults to 32.
	BatchGroups int `koanf:"batch_groups"`
	// GroupSize is how many trajectories are sampled of a prompt. An advantage that needs a baseline (remax) has one
	// more rolled out, greedily, which is not trained on. Defaults to 8.
	GroupSize int `koanf:"group_size"`
	// MinGroup is how many usable trajectories a group needs when some were cancelled or went stale, a baseline not
	// counted; a group with fewer is dropped and its prompt issued again. GroupSize here means all or nothing. Defaults
	// to 2.
	MinGroup int `koanf:"min_group"`
	// MaxDroppedGroups bounds the groups that the selection drops in one step: after that the step goes on with the
	// groups it has, one at least. 0 is no bound. Defaults to 128.
	MaxDroppedGroups int `koanf:"max_dropped_groups"`
	// StopWhenStuck ends the run with an error when MaxDroppedGroups, or 128 where that has no bound, were dropped for a
	// step and not one group was kept. Otherwise the run says so, and why, and waits for a question that teaches something.
	// Defaults to false.
	StopWhenStuck bool `koanf:"stop_when_stuck"`
	// MaskTools keeps what tools returned out of the loss. Turning it off trains on every token, to show what the
	// mask is for. Defaults to true.
	MaskTools bool `koanf:"mask_tools"`
	// MaxAttempts bounds how often a prompt is issued; after that another takes its place. 0 is no bound.
	// Defaults to 10.
	MaxAttempts int `koanf:"max_attempts"`

	// GroupTimeout bounds how long the trainer waits while nothing comes at all and every ticket that is left is leased: then
	// the samples that are awaited are given up, and groups that lack too many issued again. It counts as three times
	// limits.timeout at the least. 0, no limits.timeout, or deterministic turns it off; what nothing is left to come from is
	// given up at once all the same. Defaults to 15m.
	GroupTimeout time.Duration `koanf:"group_timeout"`

	// Eta bounds staleness: the oldest token of a trajectory may be this many versions behind the trainer. 0 is
	// synchronous training. It can be changed while the run goes on. Defaults to 4.
	Eta int `koanf:"eta"`
	// Depth is how many versions ahead work is issued, at most Eta; -1 follows Eta. It can be changed while the
	// run goes on. Defaults to -1.
	Depth int `koanf:"depth"`
	// Hold makes a step wait until so many further batches are ready, at most Depth: what it trains on is then Hold
	// versions old whatever the speeds. It is for studies of staleness. Defaults to 0.
	Hold int `koanf:"hold"`
	// MaxConcurrentGroups bounds the groups in flight. 0 leaves Depth alone to bound them. Defaults to 0.
	MaxConcurrentGroups int `koanf:"max_concurrent_groups"`
	// Deterministic judges groups in the order of issue, so that with Eta 0 a run gives the same weights
	// bit for bit whatever the timing. It costs waiting when Eta is above 0. Defaults to false.
	Deterministic bool `koanf:"deterministic"`

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
	Loss       loss.Config       `koanf:"loss"`
	Sampling   Sampling          `koanf:"sampling"`
	Limits     Limits            `koanf:"limits"`
	ColdStart  ColdStart         `koanf:"cold_start"`
	Checkpoint checkpoint.Config `koanf:"checkpoint"`
	Publish    Publish           `koanf:"publish"`
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

// Validate reports every fault.
func (s Selection) Validate() error {
	var f faults
	f.section("", s.Groups.Validate())
	f.section("overlong", s.Overlong.Validate())
	f.section("resample", s.Resample.Validate())
	f.section("accumulate", s.Accumulate.Validate())
	return errors.Join(f...)
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
}

// Validate reports every fault.
func (a Advantage) Validate() error {
	var f faults
	f.section("", stats.Choose("name", a.Name, advantage.Names()...))
	f.section("", a.Options.Validate())
	f.section("", stats.Choose("bootstrap", a.Bootstrap, BootstrapNone, BootstrapTimeout, BootstrapLimits))
	f.section("normalize", a.Normalize.Validate())
	return errors.Join(f...)
}

// Sampling says how rollouts draw tokens.
type Sampling struct {
	// Temperature must be positive. A baseline is drawn greedily whatever it is. Defaults to 1.
	Temperature float32 `koanf:"temperature"`
	// MaxTokens bounds one generate call; 0 leaves limits.max_tokens alone to bound it. Defaults to 0.
	MaxTokens int `koanf:"max_tokens"`
}

// Limits bound one rollout.
type Limits struct {
	// MaxTurns bounds the tool calls. Defaults to 4.
	MaxTurns int `koanf:"max_turns"`
	// MaxTokens bounds the tokens of a segment, prompt and tools included. Defaults to 96.
	MaxTokens int `koanf:"max_tokens"`
	// Timeout bounds the wall-clock of a rollout; 0 is no bound. Defaults to 2m.
	Timeout time.Duration `koanf:"timeout"`
	// MaxSegments bounds the contexts of a rollout: a trajectory with more is refused. An agent that keeps to one context
	// has one segment. 0 is no bound. Defaults to 64.
	MaxSegments int `koanf:"max_segments"`
	// MaxReward bounds a reward by magnitude: its components, process rewards and all of them together. A trajectory beyond
	// it is refused, for one would be the whole step. 0 is no bound. Defaults to 1e6.
	MaxReward float64 `koanf:"max_reward"`
}

// Publish says how versions go out.
type Publish struct {
	// DType is float32 or bfloat16. Defaults to float32.
	DType string `koanf:"dtype"`
	// ShardBytes bounds a shard; a larger tensor has one to itself. Readers take shards side by side. Defaults to
	// 16 MiB.
	ShardBytes int64 `koanf:"shard_bytes"`
}

// ProximalRecompute computes the proximal policy's log-probabilities by a forward pass.
const ProximalRecompute = "recompute"

// DefaultConfig are the settings of the demonstration.
func DefaultConfig() Config {
	c := Config{
		Steps: 60, Seed: 1,
		BatchGroups: 32, GroupSize: 8, MinGroup: 2, MaxDroppedGroups: 128, MaskTools: true, MaxAttempts: 10, GroupTimeout: 15 * time.Minute,
		Eta: 4, Depth: admission.FollowEta,
		Epochs: 1, Minibatches: 4, MicroTokens: 8192, Proximal: ProximalRecompute,
		Optimizer: Optimizer{
			LearningRate: 1e-4, Schedule: ScheduleConstant, FinalRatio: 0.1,
			Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1,
		},
		Selection: Selection{
			Groups: selection.DefaultGroups(), Overlong: selection.DefaultOverlong(),
			Resample: selection.DefaultResample(), Accumulate: selection.DefaultAccumulate(),
		},
		Critic:     DefaultCritic(),
		Advantage:  Advantage{Name: "grpo", Bootstrap: BootstrapTimeout, Normalize: stats.DefaultNormalization(), Options: advantage.DefaultOptions()},
		Loss:       loss.DefaultConfig(),
		Sampling:   Sampling{Temperature: 1},
		Limits:     Limits{MaxTurns: 4, MaxTokens: 96, Timeout: 2 * time.Minute, MaxSegments: 64, MaxReward: 1e6},
		ColdStart:  DefaultColdStart(),
		Checkpoint: checkpoint.DefaultConfig(),
		Publish:    Publish{DType: "float32", ShardBytes: 16 << 20},
	}
	c.Advantage.StdEpsilon = 0.2
	c.Loss.Name = "decoupled_ppo"
	return c
}

// Validate reports every fault.
func (c Config) Validate() error {
	var f faults
	f.positive("steps", c.Steps)
	f.positive("batch_groups", int64(c.BatchGroups))
	f.positive("group_size", int64(c.GroupSize))
	f.positive("min_group", int64(c.MinGroup))
	f.check("min_group", c.MinGroup <= c.GroupSize, fmt.Sprintf("%d: must not exceed group_size (%d)", c.MinGroup, c.GroupSize))
	least := advantage.LeastGroup(c.Advantage.Name)
	f.check("min_group", least == 1 || c.MinGroup >= least, fmt.Sprintf("%d: advantage %s compares at least %d", c.MinGroup, c.Advantage.Name, least))
	learns := advantage.LearnsFrom(c.Advantage.Name, c.Advantage.Options)
	f.check("group_size", c.GroupSize < 1 || c.GroupSize >= learns || !loss.ReadsAdvantages(c.Loss.Name),
		fmt.Sprintf("%d: advantage %s is 0 for groups of fewer than %d: nothing would be learnt",
			c.GroupSize, c.Advantage.Name, learns))
	if r := c.Selection.Resample; r.By != selection.ResampleOff && r.Take >= 1 { // less is the section's own fault
		f.check("selection.resample.take", r.Take >= least && r.Take <= c.GroupSize,
			fmt.Sprintf("%d: must be between %d, what advantage %s compares, and group_size (%d)", r.Take, least, c.Advantage.Name, c.GroupSize))
	}
	f.notNegative("max_dropped_groups", int64(c.MaxDroppedGroups))
	f.notNegative("max_attempts", int64(c.MaxAttempts))
	f.check("group_timeout", c.GroupTimeout >= 0, fmt.Sprintf("%s: must not be negative", c.GroupTimeout))
	f.notNegative("eta", int64(c.Eta))
	f.check("depth", c.Depth >= admission.FollowEta && c.Depth <= c.Eta, fmt.Sprintf("%d: must be -1, or between 0 and eta (%d)", c.Depth, c.Eta))
	if c.Eta >= 0 && c.Depth >= admission.FollowEta && c.Depth <= c.Eta { // else there is no depth to compare with
		pace := c.limits(c.Eta, c.Depth).Pace()
		f.check("hold", c.Hold >= 0 && c.Hold <= pace, fmt.Sprintf("%d: must be between 0 and the depth (%d)", c.Hold, pace))
	}
	f.check("hold", c.Hold == 0 || c.Selection.Accumulate.Rows == 0, fmt.Sprintf("%d: counts batches of groups: set selection.accumulate.rows to 0", c.Hold))
	f.notNegative("max_concurrent_groups", int64(c.MaxConcurrentGroups))
	f.positive("epochs", int64(c.Epochs))
	f.positive("minibatches", int64(c.Minibatches))
	f.positive("micro_tokens", int64(c.MicroTokens))
	switch c.Proximal {
	case ProximalRecompute, loss.ApproximateLogLinear, loss.ApproximateLinear, loss.ApproximateRollout:
	default:
		f.check("proximal", false, fmt.Sprintf("%q: must be recompute, loglinear, linear or rollout", c.Proximal))
	}
	f.section("optimizer", c.Optimizer.Validate())
	f.section("critic", c.Critic.Validate())
	fault := c.criticFault()
	f.check("critic.network", fault == "", fault)
	f.check("selection.resample.by", c.Selection.Resample.By != selection.ResampleBest || c.Critic.Network == CriticNone,
		"best: a critic that learns from the best samples alone expects too much: set critic.network to none, or by to on_correct")
	f.section("selection", c.Selection.Validate())
	f.section("advantage", c.Advantage.Validate())
	f.check("mask_tools", c.MaskTools || !advantage.FactsOf(c.Advantage.Name, c.Advantage.Options).ByTurns,
		fmt.Sprintf("false: advantage %s tells turns apart by the masks: leave it on", c.Advantage.Name))
	f.check("advantage.normalize_process", !c.Advantage.NormalizeProcess || !c.baseline(),
		fmt.Sprintf("true: it would scale the samples' rewards and not the baseline's of %s: turn it off", c.Advantage.Name))
	f.section("loss", c.Loss.Validate())
	f.check("sampling.temperature", c.Sampling.Temperature > 0 && !math.IsInf(float64(c.Sampling.Temperature), 0),
		fmt.Sprintf("%g: must be positive: what is drawn greedily cannot be trained on", c.Sampling.Temperature))
	f.notNegative("sampling.max_tokens", int64(c.Sampling.MaxTokens))
	f.notNegative("limits.max_turns", int64(c.Limits.MaxTurns))
	f.positive("limits.max_tokens", int64(c.Limits.MaxTokens))
	f.notNegative("limits.max_segments", int64(c.Limits.MaxSegments))
	f.check("limits.max_reward", c.Limits.MaxReward >= 0 && finite(c.Limits.MaxReward), fmt.Sprintf("%g: must not be negative, and finite", c.Limits.MaxReward))
	f.check("limits.timeout", c.Limits.Timeout >= 0, fmt.Sprintf("%s: must not be negative", c.Limits.Timeout))
	f.section("cold_start", c.ColdStart.Validate())
	f.section("checkpoint", c.Checkpoint.Validate())
	f.check("publish.dtype", c.Publish.DType == "float32" || c.Publish.DType == "bfloat16", fmt.Sprintf("%q: must be float32 or bfloat16", c.Publish.DType))
	f.positive("publish.shard_bytes", c.Publish.ShardBytes)
	return errors.Join(f...)
}

// Validate reports every fault.
func (o Optimizer) Validate() error {
	var f faults
	f.rate("learning_rate", o.LearningRate)
	switch o.Schedule {
	case ScheduleConstant, ScheduleLinear, ScheduleCosine:
	default:
		f.check("schedule", false, fmt.Sprintf("%q: must be constant, linear or cosine", o.Schedule))
	}
	f.notNegative("warmup_steps", o.WarmupSteps)
	f.check("final_ratio", o.FinalRatio >= 0 && o.FinalRatio <= 1, fmt.Sprintf("%g: must be between 0 and 1", o.FinalRatio))
	f.check("beta1", o.Beta1 >= 0 && o.Beta1 < 1, fmt.Sprintf("%g: must be at least 0 and below 1", o.Beta1))
	f.check("beta2", o.Beta2 >= 0 && o.Beta2 < 1, fmt.Sprintf("%g: must be at least 0 and below 1", o.Beta2))
	f.rate("epsilon", o.Epsilon)
	f.check("weight_decay", o.WeightDecay >= 0 && finite(o.WeightDecay), fmt.Sprintf("%g: must not be negative", o.WeightDecay))
	f.check("clip_norm", o.ClipNorm >= 0 && finite(o.ClipNorm), fmt.Sprintf("%g: must not be negative", o.ClipNorm))
	return errors.Join(f...)
}

// faults gathers what is wrong, each naming its key.
type faults []error

func (f *faults) check(key string, ok bool, problem string) {
	if !ok {
		*f = append(*f, fmt.Errorf("%s: %s", key, problem))
	}
}

func (f *faults) positive(key string, v int64) {
	f.check(key, v > 0, fmt.Sprintf("%d: must be positive", v))
}

func (f *faults) notNegative(key string, v int64) {
	f.check(key, v >= 0, fmt.Sprintf("%d: must not be negative", v))
}

func (f *faults) rate(key string, v float64) {
	f.check(key, v > 0 && finite(v), fmt.Sprintf("%g: must be positive", v))
}

// section puts a section's name before each of its faults, however they are joined; "" is no name.
func (f *faults) section(name string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.section(name, e)
		}
		return
	}
	if name != "" {
		err = fmt.Errorf("%s.%w", name, err)
	}
	*f = append(*f, err)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// minibatches of a batch of so many groups.
func (c Config) minibatches(groups int) int {
	return max(1, (c.Minibatches*groups+c.BatchGroups-1)/c.BatchGroups)
}

// hold at a step: the last batches of a run have no others behind them.
func (c Config) hold(step int64) int { return int(max(0, min(int64(c.Hold), c.Steps-step-1))) }

// limits are the admission controller's.
func (c Config) limits(eta, depth int) admission.Limits {
	l := admission.Limits{Batch: c.BatchGroups, Eta: eta, Depth: depth}
	l.Concurrency = c.MaxConcurrentGroups
	if l.Concurrency == 0 {
		l.Concurrency = (l.Pace() + 1) * c.BatchGroups
	}
	return l
}

// baseline says that groups have a greedy rollout to be compared with.
func (c Config) baseline() bool {
	return slices.Contains(advantage.Requires(c.Advantage.Name, c.Advantage.Options), "Baselines")
}

// groupTickets is how many rollouts a group asks for.
func (c Config) groupTickets() int {
	if c.baseline() {
		return c.GroupSize + 1
	}
	return c.GroupSize
}

// maxPending is how many messages may be delivered and not acked: all that can be of use at once, with room for
// markers and what is refused.
func (c Config) maxPending(eta int) int {
	return max(1024, int(c.horizon(eta))*c.groupTickets())
}

// Tickets is how many tickets may be outstanding at once.
func (c Config) Tickets() int { return c.limits(c.Eta, c.Depth).Concurrency * c.groupTickets() }

// horizon is how many prompts beyond the last one issued may have messages in the stream.
func (c Config) horizon(eta int) uint64 { return uint64(4 * (eta + 2) * c.rounds() * c.BatchGroups) }

// rounds is how often the prompts of one step may be issued.
func (c Config) rounds() int {
	if c.Selection.Accumulate.Rows == 0 {
		return 1
	}
	return c.Selection.Accumulate.MaxRounds
}

// StreamMessages is how many messages the trajectory stream must hold at the least: what the checkpoints that the
// run can go back to need, what waits for a batch, and what ends between two checkpoints.
func (c Config) StreamMessages() int {
	return c.rounds()*c.BatchGroups*c.groupTickets()*(c.Checkpoint.Keep+c.Eta+1) + c.Checkpoint.Messages
}
