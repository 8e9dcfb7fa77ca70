// Package selfplay is the reward of the agent of this name: the rewards of a game's parts.
package selfplay

import (
	"context"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/selfplay"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "selfplay"

// The rewards of a valid question for its proposer, by the share p of the solvers that answered it rightly.
const (
	ByDifficulty  = "difficulty"  // 1 - p, as in Search Self-play: most where no solver was right
	ByUncertainty = "uncertainty" // 4p(1-p): most where half of the solvers were right, nothing where all or none were
)

// The components of the reward beside producers.ComponentExactMatch.
const (
	// ComponentAsked reports whether there was a question that did not give its answer away, ComponentValid whether the verifier answered
	// it rightly too, ComponentSolved which share of the solvers did, 0 where the question was not valid.
	ComponentAsked  = "asked"
	ComponentValid  = "valid"
	ComponentSolved = "solved"
)

// Config sets the reward of the proposer. Each solver gets 1 for a right answer, else 0, and the verifier 0 always, so that an estimator
// which compares parts of the same name neither reinforces nor weakens the verifier.
type Config struct {
	// Proposer is the reward of a valid question, by the share p of the solvers that were right: difficulty is 1 - p, uncertainty 4p(1-p).
	// Defaults to difficulty.
	Proposer string `koanf:"proposer"`
	// Invalid is the reward of a question that holds its answer, that the verifier answers wrongly, or that is missing: 0 or less, at least
	// -1. Defaults to 0.
	Invalid float64 `koanf:"invalid"`
}

// DefaultConfig is the rule of Search Self-play.
func DefaultConfig() Config { return Config{Proposer: ByDifficulty} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(check.OneOf("proposer", c.Proposer, ByDifficulty, ByUncertainty), check.Between("invalid", c.Invalid, -1, 0))
}

// Reward is a producers.Reward.
type Reward struct{ cfg Config }

// New makes the reward.
func New(cfg Config) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Reward{cfg}, nil
}

// ReadsOfEpisode says that a stored trajectory lacks the answers of single agents.
func (r *Reward) ReadsOfEpisode() string { return "the answers of solvers and verifier" }

// Score returns the reward of each part of a game; of a plain question, 1 for the right answer.
//
// The total of a game is the share of the solvers that were right, as a curve of the rewards shows; whoever credits agents apart does not
// read it, for each part has a reward of its own.
func (r *Reward) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	answers := ticket.Prompt.Answers
	if len(t.Contexts) == 0 || t.Contexts[0].Agent != selfplay.Proposer {
		exact := 0.0
		if t.Stop == schemas.StopAnswer && selfplay.Right(t.Answer, answers...) {
			exact = 1
		}
		return producers.Score{Total: exact, Components: map[string]float64{producers.ComponentExactMatch: exact}}, nil
	}
	asked, valid, solvers, right := 0.0, 0.0, 0.0, 0.0
	agents := map[string]float64{}
	for _, c := range t.Contexts { // each part has a reward
		correct := 0.0
		if selfplay.Right(c.Answer, answers...) {
			correct = 1
		}
		switch {
		case c.Agent == selfplay.Verifier:
			agents[c.Agent], asked, valid = 0, 1, correct
		case selfplay.IsSolver(c.Agent):
			agents[c.Agent] = correct
			solvers, right = solvers+1, right+correct
		}
	}
	if t.Stop != schemas.StopAnswer || solvers == 0 {
		valid = 0 // a limit cut the game off: the solvers had no fair chance
	}
	solved := 0.0
	agents[selfplay.Proposer] = r.cfg.Invalid
	if valid == 1 {
		solved = right / solvers
		agents[selfplay.Proposer] = r.proposerScore(solved)
	}
	return producers.Score{Total: solved, Agents: agents, Components: map[string]float64{
		producers.ComponentExactMatch: solved, ComponentAsked: asked, ComponentValid: valid, ComponentSolved: solved,
	}}, nil
}

// proposerScore returns the reward of a valid question that a share of the solvers answered rightly.
func (r *Reward) proposerScore(solved float64) float64 {
	if r.cfg.Proposer == ByUncertainty {
		return 4 * solved * (1 - solved)
	}
	return 1 - solved
}

// Ballot is the answer to a plain question, normalised.
func (r *Reward) Ballot(answer string) string { return rewards.Words(answer) }

// Same is false: equal spellings are normalised before.
func (r *Reward) Same(_, _ string) bool { return false }

// Type is the kind of reward that a configuration names by type: selfplay.
func Type() rewards.Type { return rewards.NewType(Name, DefaultConfig, openReward) }

// openReward makes the reward.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	return New(cfg)
}
