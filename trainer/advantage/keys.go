package advantage

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// The advantages of a group of one trajectory.
const (
	SingleZero   = "zero"   // 0: there is no other trajectory to compare with
	SingleReward = "reward" // its reward, as if the group's mean were 0 and its deviation 1
)

// How bilevel credits steps, and tokens within a step.
const (
	ByReturn  = "return"  // steps: the discounted return, without a critic
	ByGAE     = "gae"     // steps or tokens: generalized advantage estimation
	Broadcast = "uniform" // tokens: the step's whitened advantage for each
)

// The units of a step.
const (
	UnitAuto    = "auto"    // the authors': a turn for gigpo, a segment for the others
	UnitSegment = "segment" // all tokens that the policy sampled in a context (row)
	UnitTurn    = "turn"    // a run of action tokens between other tokens
)

// The tokens that tell the states of gigpo apart.
const (
	AnchorObservation = "observation"
	AnchorContext     = "context"
)

// Alone has the key of estimators that compare trajectories within their group.
type Alone struct {
	// Single is the advantage of a group of one trajectory: zero or reward.
	Single string `koanf:"single" default:"zero" oneof:"zero reward"`
}

// learnsFrom is the size of the smallest group that an estimator with this key learns from.
func (a Alone) learnsFrom() int {
	if a.Single == SingleZero {
		return 2
	}
	return 1
}

// Comparing has the keys that shape the rewards of a group.
type Comparing struct {
	// LengthPenalty shapes the rewards of a group before it is compared (prime-rl).
	LengthPenalty LengthPenalty `koanf:"length_penalty"`
}

// LengthPenalty takes from each reward of a group mean(R) * sum of weight * x / max(x) over the group. A weight
// of 0, the default, is none.
type LengthPenalty struct {
	// OutputTokens weighs action tokens, InputTokens the others in each context, repeated tokens too, Turns the runs of action tokens.
	OutputTokens float64 `koanf:"output_tokens" min:"0"`
	InputTokens  float64 `koanf:"input_tokens" min:"0"`
	Turns        float64 `koanf:"turns" min:"0"`
}

// Scaling has the keys of estimators that divide by the deviation of a group's rewards.
type Scaling struct {
	// DivideByStd divides by the deviation of the group's rewards. False is Dr. GRPO.
	DivideByStd bool `koanf:"divide_by_std" default:"true"`
	// StdEpsilon is added to that deviation. A larger epsilon holds back groups of nearly equal rewards; the authors' is 1e-6.
	StdEpsilon float64 `koanf:"std_epsilon" default:"0.2" min:"0"`
}

// Whitening has the keys of estimators that bring their advantages to mean 0 and variance 1 over the batch.
type Whitening struct {
	// Whiten brings the advantages of the batch to mean 0 and variance 1, over action tokens, or over steps in gae_step, reinforce_step
	// and bilevel.
	Whiten bool `koanf:"whiten" default:"true"`
	// WhitenEpsilon is added to the variance of whitened tokens, or to the deviation of whitened steps.
	WhitenEpsilon float64 `koanf:"whiten_epsilon" default:"1e-8" min:"0"`
}

// Steps has the keys of estimators that credit steps.
type Steps struct {
	// StepUnit is the unit of a step: segment, all tokens that the policy sampled in a context, for agents that write their context anew;
	// turn, the tokens that it sampled between two observations, for agents whose context only grows; or auto, the authors': a turn for
	// gigpo, a segment for the others.
	StepUnit string `koanf:"step_unit" default:"auto" oneof:"auto segment turn"`
	// StepGamma discounts from a step of a trajectory to the next.
	StepGamma float64 `koanf:"step_gamma" default:"1" min:"0" max:"1"`
}

// Grouped has the keys of dr_grpo, rloo and opo.
type Grouped struct {
	Comparing `koanf:",squash"`
	Alone     `koanf:",squash"`
}

// GRPO has the keys of grpo.
type GRPO struct {
	Grouped `koanf:",squash"`
	Scaling `koanf:",squash"`
}

// GPG has the keys of gpg.
type GPG struct {
	Grouped `koanf:",squash"`
	// GPGNorm divides the advantages.
	GPGNorm float64 `koanf:"gpg_norm" default:"1" above:"0"`
}

// MaxRL has the keys of max_rl.
type MaxRL struct {
	Comparing `koanf:",squash"`
}

// RAE has the keys of rae.
type RAE struct {
	Comparing `koanf:",squash"`
	// Decay of the running mean: the share of the mean that each new reward leaves.
	Decay float64 `koanf:"decay" default:"0.95" min:"0" max:"1"`
}

// PassK has the keys of grpo_passk.
type PassK struct {
	Comparing `koanf:",squash"`
	Scaling   `koanf:",squash"`
}

// HierarchicalGRPO has the keys of hierarchical_grpo.
type HierarchicalGRPO struct {
	Grouped `koanf:",squash"`
	// EpisodeAgents are the roles that are compared within their episode, such as solver for solver-1 to solver-4 of a game; any other
	// agent is compared with the same agent of the group's other episodes. An agent's role is its name without the number at the end.
	EpisodeAgents []string `koanf:"episode_agents"`
}

// Validate reports every fault: EpisodeAgents are roles and not single agents.
func (c HierarchicalGRPO) Validate() error {
	faults := []error{check.Fields(c)}
	for i, name := range c.EpisodeAgents {
		role := schemas.Role(name)
		faults = append(faults, check.That(name != "" && role == name, fmt.Sprintf("episode_agents[%d]", i),
			"%q: want the role of agents, which is their name without its number, such as %s", name, cmp.Or(role, "solver")))
	}
	return errors.Join(faults...)
}

// ReinforcePPBaseline has the keys of reinforce_pp_baseline.
type ReinforcePPBaseline struct {
	Grouped   `koanf:",squash"`
	Whitening `koanf:",squash"`
}

// ReinforcePP has the keys of reinforce_pp.
type ReinforcePP struct {
	Whitening `koanf:",squash"`
	// Gamma discounts from an action token to the next.
	Gamma float64 `koanf:"gamma" default:"1" min:"0" max:"1"`
}

// GAE has the keys of gae.
type GAE struct {
	ReinforcePP `koanf:",squash"`
	// Lambda discounts the surprise of the critic, from an action token to the next.
	Lambda float64 `koanf:"lambda" default:"1" min:"0" max:"1"`
}

// ReMax has the keys of remax: none.
type ReMax struct{}

// TokenBaseline has the keys of optimal_token_baseline.
type TokenBaseline struct {
	Alone `koanf:",squash"`
	// ZeroTail removes the baseline from the places that only the longest trajectory of a group reaches.
	ZeroTail bool `koanf:"zero_tail" default:"true"`
}

// PrimeRLOO has the keys of prime_rloo.
type PrimeRLOO struct {
	Alone     `koanf:",squash"`
	Whitening `koanf:",squash"`
	// ProcessWeight and OutcomeWeight multiply the two rewards. The defaults are PRIME's.
	ProcessWeight float64 `koanf:"process_weight" default:"5" min:"0"`
	OutcomeWeight float64 `koanf:"outcome_weight" default:"5" min:"0"`
}

// Validate reports every fault: at least a single weight must be above 0.
func (c PrimeRLOO) Validate() error {
	return check.All(check.Fields(c), check.That(c.ProcessWeight > 0 || c.OutcomeWeight > 0, "outcome_weight",
		"0: advantage prime_rloo is 0 without an outcome and without process rewards: set it, or process_weight, above 0"))
}

// MTGRPO has the keys of mt_grpo.
type MTGRPO struct {
	Alone     `koanf:",squash"`
	Scaling   `koanf:",squash"`
	Whitening `koanf:",squash"`
	// TurnWeight multiplies the turn advantage.
	TurnWeight float64 `koanf:"turn_weight" default:"1" min:"0"`
}

// GiGPO has the keys of gigpo.
type GiGPO struct {
	Grouped `koanf:",squash"`
	Scaling `koanf:",squash"`
	Steps   `koanf:",squash"`
	// Anchor selects the tokens that name the state that a turn began in: observation, the tokens since the turn before, as in the authors'
	// code, also where a new context repeats that turn and all before it; or context, all tokens of its row before it.
	Anchor string `koanf:"anchor" default:"observation" oneof:"observation context"`
	// StepWeight multiplies the step advantage.
	StepWeight float64 `koanf:"step_weight" default:"1" min:"0"`
}

// VinePPO has the keys of vineppo: none. How many episodes go on from each state is a key of producers.
type VinePPO struct{}

// ReinforceStep has the keys of reinforce_step.
type ReinforceStep struct {
	Steps     `koanf:",squash"`
	Whitening `koanf:",squash"`
}

// GAEStep has the keys of gae_step.
type GAEStep struct {
	ReinforceStep `koanf:",squash"`
	// StepLambda discounts the surprise of the critic, from a step of a trajectory to the next.
	StepLambda float64 `koanf:"step_lambda" default:"1" min:"0" max:"1"`
}

// Bilevel has the keys of bilevel.
type Bilevel struct {
	GAEStep `koanf:",squash"`
	// StepCredit and TokenCredit select how steps are credited, by return or gae, and the tokens of a step, uniform or gae. The defaults
	// are L0's. Gamma and Lambda are read where TokenCredit is gae, StepLambda where StepCredit is gae.
	StepCredit  string `koanf:"step_credit" default:"return" oneof:"return gae"`
	TokenCredit string `koanf:"token_credit" default:"uniform" oneof:"uniform gae"`
	// Gamma and Lambda discount from an action token to the next.
	Gamma  float64 `koanf:"gamma" default:"1" min:"0" max:"1"`
	Lambda float64 `koanf:"lambda" default:"1" min:"0" max:"1"`
}

// Unread returns the reason why nothing depends on a key, beginning with the other key that causes it; "" if something does.
func (c *Bilevel) Unread(key string) string {
	switch {
	case key == "step_lambda" && c.StepCredit != ByGAE:
		return "step_credit is " + c.StepCredit
	case (key == "gamma" || key == "lambda") && c.TokenCredit != ByGAE:
		return "token_credit is " + c.TokenCredit
	}
	return ""
}

// Arithmetic has the variants of other projects, with which the golden tests compare: no key sets them, and a run uses [DefaultArithmetic].
type Arithmetic struct {
	// MaskRewards ignores rewards at tokens that are not actions. Defaults to true.
	MaskRewards bool
	// CountEmpty counts trajectories and steps without an action token in the statistics of their group or batch, as
	// verl and Agent-R1 do. By default they contribute nothing.
	CountEmpty bool
	// ResetAtMask starts the return anew at every token that is not an action, so that earlier turns get no
	// credit for a final outcome: verl's REINFORCE++. Defaults to false.
	ResetAtMask bool
	// CarryMasked fills a token that is not an action with the value of the recursion there, before whitening
	// and masking. By default it is 0, and its return the critic's value.
	CarryMasked bool
	// MaskAdvantages and MaskReturns put 0 where the mask is 0, after whitening. Default to true.
	MaskAdvantages bool
	MaskReturns    bool
	// VarianceFloor is the least variance: std = sqrt(max(variance, floor)). Defaults to 0.
	VarianceFloor float64
	// EmptyNaN makes opo's baseline of a group without action tokens NaN, as verl's is, where the default is 0.
	EmptyNaN bool
	// CountEpsilon is added to the count in the whitening's means (verl: 1e-8). Defaults to 0.
	CountEpsilon float64
	// ByPosition aligns the rows of a group by position in optimal_token_baseline, where the default is by
	// count of action tokens, which tool output does not shift.
	ByPosition bool
}

// DefaultArithmetic honours the masks everywhere and lets an outcome reward reach every earlier turn.
func DefaultArithmetic() Arithmetic {
	return Arithmetic{MaskRewards: true, MaskAdvantages: true, MaskReturns: true}
}

// whitener brings advantages to mean 0 and variance 1.
type whitener struct {
	Arithmetic
	Whitening
}
