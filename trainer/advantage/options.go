package advantage

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// What a group of one trajectory gets.
const (
	SingleZero   = "zero"   // nothing: it has nothing to be compared with
	SingleReward = "reward" // its reward, as if the group's mean were 0 and its deviation 1
)

// How bilevel credits steps, and tokens within a step.
const (
	ByReturn  = "return"  // steps: the discounted return, without a critic
	ByGAE     = "gae"     // steps or tokens: generalized advantage estimation
	Broadcast = "uniform" // tokens: the step's whitened advantage for each
)

// What a step is.
const (
	UnitAuto    = "auto"    // the authors': a turn for gigpo, a segment for the others
	UnitSegment = "segment" // all that the policy sampled in one context (row)
	UnitTurn    = "turn"    // a run of action tokens, between what was said before it and after
)

// What tells the states of gigpo apart.
const (
	AnchorObservation = "observation"
	AnchorContext     = "context"
)

// Options choose between the forms that estimators have in the field. Each estimator reads those named in
// its docs/algorithms.md entry. The defaults are the sound ones: masks honoured everywhere, an outcome reward
// reaching every earlier turn.
type Options struct {
	// Gamma and Lambda discount from one action token to the next, in [0, 1]. Default to 1.
	Gamma  float64 `koanf:"gamma"`
	Lambda float64 `koanf:"lambda"`
	// StepUnit says what a step of gae_step, reinforce_step, bilevel and gigpo is: segment, all that the policy sampled in one
	// context, for agents that write their context anew; turn, what it sampled between two observations, for agents whose context only
	// grows; or auto, the authors': a turn for gigpo, a segment for the others. Defaults to auto.
	StepUnit string `koanf:"step_unit"`
	// StepGamma and StepLambda discount from one step of a trajectory to the next. Default to 1.
	StepGamma  float64 `koanf:"step_gamma"`
	StepLambda float64 `koanf:"step_lambda"`

	// NormalizeProcess divides process rewards, those before a trajectory's last action token, by their largest return in
	// size over the batch (PRIME, Agent-R1). Defaults to false.
	NormalizeProcess bool `koanf:"normalize_process"`

	// DivideByStd divides by the deviation of the group's rewards. False is Dr. GRPO. Defaults to true.
	DivideByStd bool `koanf:"divide_by_std"`
	// StdEpsilon is added to that deviation. A larger epsilon holds back groups of nearly equal rewards. Defaults to 1e-6.
	StdEpsilon float64 `koanf:"std_epsilon"`
	// Single says what a group of one trajectory gets: zero or reward. Defaults to zero.
	Single string `koanf:"single"`

	// Whiten brings the advantages of the batch to mean 0 and variance 1, in the estimators whose authors do: gae,
	// reinforce_pp and its baseline form, prime_rloo and mt_grpo over action tokens, gae_step, reinforce_step and bilevel
	// over steps. Defaults to true.
	Whiten bool `koanf:"whiten"`
	// WhitenEpsilon is added to the variance of whitened tokens, or to the deviation of whitened steps. Defaults to 1e-8.
	WhitenEpsilon float64 `koanf:"whiten_epsilon"`

	// StepCredit and TokenCredit are bilevel's: return or gae over steps, uniform or gae over the tokens of a
	// step. Default to return and uniform, L0's.
	StepCredit  string `koanf:"step_credit"`
	TokenCredit string `koanf:"token_credit"`
	// Anchor says which tokens name the state that a turn of gigpo began in: observation, those since the turn before, or
	// context, all of its row before it. Defaults to observation, the authors'.
	Anchor string `koanf:"anchor"`
	// StepWeight multiplies GiGPO's step advantage. Defaults to 1.
	StepWeight float64 `koanf:"step_weight"`
	// TurnWeight multiplies MT-GRPO's turn advantage. Defaults to 1.
	TurnWeight float64 `koanf:"turn_weight"`
	// ProcessWeight and OutcomeWeight multiply the two rewards of prime_rloo. Default to 5, PRIME's.
	ProcessWeight float64 `koanf:"process_weight"`
	OutcomeWeight float64 `koanf:"outcome_weight"`
	// GPGNorm divides gpg's advantages. Defaults to 1.
	GPGNorm float64 `koanf:"gpg_norm"`
	// ZeroTail takes the baseline from what only the longest trajectory of a group reaches. Defaults to true.
	ZeroTail bool `koanf:"zero_tail"`
	// Decay of rae's running mean, in [0, 1]: the share of the mean that each new reward leaves. Defaults to 0.95.
	Decay float64 `koanf:"decay"`
	// EpisodeAgents are the roles that hierarchical_grpo compares within their episode, such as solver for solver-1 to solver-4 of
	// one game; any other agent it compares with the same agent of the group's other episodes. An agent's role is its name without
	// the number at the end. Defaults to none.
	EpisodeAgents []string `koanf:"episode_agents"`
	// LengthPenalty shapes the rewards of a group before it is compared (prime-rl).
	LengthPenalty LengthPenalty `koanf:"length_penalty"`

	// The options from here on have no key, and in a run their defaults: by them the golden tests compare with the
	// arithmetic of other projects.

	// MaskRewards ignores rewards at tokens that are not actions. Defaults to true.
	MaskRewards bool `koanf:"-"`
	// CountEmpty counts trajectories and steps without an action token in the statistics of their group or batch, as
	// verl and Agent-R1 do. By default they contribute nothing.
	CountEmpty bool `koanf:"-"`
	// ResetAtMask starts the return anew at every token that is not an action, so that earlier turns get no
	// credit for a final outcome: verl's REINFORCE++. Defaults to false.
	ResetAtMask bool `koanf:"-"`
	// CarryMasked fills a token that is not an action with the value of the recursion there, before whitening
	// and masking. By default it is 0, and its return the critic's value.
	CarryMasked bool `koanf:"-"`
	// MaskAdvantages and MaskReturns put 0 where the mask is 0, after whitening. Default to true.
	MaskAdvantages bool `koanf:"-"`
	MaskReturns    bool `koanf:"-"`
	// VarianceFloor is the least variance: std = sqrt(max(variance, floor)). Defaults to 0.
	VarianceFloor float64 `koanf:"-"`
	// EmptyNaN makes opo's baseline of a group without action tokens NaN, as verl's is, where the default is 0.
	EmptyNaN bool `koanf:"-"`
	// CountEpsilon is added to the count in the whitening's means (verl: 1e-8). Defaults to 0.
	CountEpsilon float64 `koanf:"-"`
	// ByPosition aligns the rows of a group by position in optimal_token_baseline, where the default is by
	// count of action tokens, which tool output does not shift.
	ByPosition bool `koanf:"-"`
}

// LengthPenalty takes from each reward of a group mean(R) * sum of weight * x / max(x) over the group. A weight
// of 0, the default, is none.
type LengthPenalty struct {
	// OutputTokens weighs action tokens, InputTokens the others, Turns the runs of action tokens.
	OutputTokens float64 `koanf:"output_tokens"`
	InputTokens  float64 `koanf:"input_tokens"`
	Turns        float64 `koanf:"turns"`
}

// DefaultOptions honour the masks everywhere and let an outcome reward reach every earlier turn.
func DefaultOptions() Options {
	return Options{
		Gamma: 1, Lambda: 1, StepGamma: 1, StepLambda: 1,
		MaskRewards: true, MaskAdvantages: true, MaskReturns: true,
		DivideByStd: true, StdEpsilon: 1e-6, Single: SingleZero,
		Whiten: true, WhitenEpsilon: 1e-8,
		StepUnit: UnitAuto, StepCredit: ByReturn, TokenCredit: Broadcast, Anchor: AnchorObservation,
		StepWeight: 1, TurnWeight: 1, ProcessWeight: 5, OutcomeWeight: 5, GPGNorm: 1,
		ZeroTail: true, Decay: 0.95,
	}
}

// Validate reports every fault, each under its key.
func (o Options) Validate() error {
	return check.All(
		check.Between("gamma", o.Gamma, 0, 1),
		check.Between("lambda", o.Lambda, 0, 1),
		check.Between("step_gamma", o.StepGamma, 0, 1),
		check.Between("step_lambda", o.StepLambda, 0, 1),
		check.Between("decay", o.Decay, 0, 1),
		check.NotNegative("std_epsilon", o.StdEpsilon),
		check.NotNegative("VarianceFloor", o.VarianceFloor),
		check.NotNegative("whiten_epsilon", o.WhitenEpsilon),
		check.NotNegative("CountEpsilon", o.CountEpsilon),
		check.NotNegative("step_weight", o.StepWeight),
		check.NotNegative("turn_weight", o.TurnWeight),
		check.NotNegative("process_weight", o.ProcessWeight),
		check.NotNegative("outcome_weight", o.OutcomeWeight),
		check.NotNegative("length_penalty.output_tokens", o.LengthPenalty.OutputTokens),
		check.NotNegative("length_penalty.input_tokens", o.LengthPenalty.InputTokens),
		check.NotNegative("length_penalty.turns", o.LengthPenalty.Turns),
		check.Positive("gpg_norm", o.GPGNorm),
		check.OneOf("single", o.Single, SingleZero, SingleReward),
		check.OneOf("step_unit", o.StepUnit, UnitAuto, UnitSegment, UnitTurn),
		check.OneOf("step_credit", o.StepCredit, ByReturn, ByGAE),
		check.OneOf("token_credit", o.TokenCredit, Broadcast, ByGAE),
		check.OneOf("anchor", o.Anchor, AnchorObservation, AnchorContext),
		o.checkAgents(),
	)
}

// checkAgents wants roles in the place of single agents.
func (o Options) checkAgents() error {
	var faults []error
	for i, name := range o.EpisodeAgents {
		role := schemas.Role(name)
		faults = append(faults, check.That(name != "" && role == name, fmt.Sprintf("episode_agents[%d]", i),
			"%q: want the role of agents, which is their name without its number, such as %s", name, cmp.Or(role, "solver")))
	}
	return errors.Join(faults...)
}
