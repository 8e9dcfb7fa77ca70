package math

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// The ways to find a number in an answer to a question of GSM8K, as verl has them (verl/utils/reward_score/gsm8k.py).
const (
	// Strict takes the number after ####.
	Strict = "strict"
	// Flexible takes the last number.
	Flexible = "flexible"
)

var (
	afterHashes = regexp.MustCompile(`#### (-?[0-9.,]+)`)
	anyNumber   = regexp.MustCompile(`-?[0-9.,]+`)
)

// GSM8K is the number in a solution, as verl takes it out. ok is false where there is none. verl's releases differ in which number after
// #### counts, the first or, in later ones, the last: this takes the last, and looks at the last 300 characters alone, as they do.
func GSM8K(solution, method string) (answer string, ok bool) {
	if r := []rune(solution); len(r) > 300 {
		solution = string(r[len(r)-300:])
	}
	if method == Strict {
		found := afterHashes.FindAllStringSubmatch(solution, -1)
		if len(found) == 0 {
			return "", false
		}
		return strings.ReplaceAll(found[len(found)-1][1], ",", ""), true
	}
	found := anyNumber.FindAllString(solution, -1)
	for _, answer = range slices.Backward(found) {
		if answer != "." {
			return answer, true
		}
	}
	return answer, len(found) > 0
}

// GSM8KConfig sets the reward of an answer.
type GSM8KConfig struct {
	// Method is strict, the number after ####, or flexible, the last number. Defaults to strict.
	Method string `koanf:"method"`
	// Score is the reward for the right number, FormatScore for another number. Default to 1 and 0.
	Score       float64 `koanf:"score"`
	FormatScore float64 `koanf:"format_score"`
}

// Validate reports every fault.
func (c GSM8KConfig) Validate() error {
	return check.All(check.OneOf("method", c.Method, Strict, Flexible), check.Finite("score", c.Score), check.Finite("format_score", c.FormatScore))
}

// GSM8KReward scores as verl does: the number must be the accepted number to the letter.
type GSM8KReward struct{ cfg GSM8KConfig }

// Score is that of the last turn.
func (r *GSM8KReward) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	given, ok := GSM8K(t.Answer, r.cfg.Method)
	ok = ok && t.Stop == schemas.StopAnswer
	right := ok && isAccepted(ticket, func(a string) bool { return given == strings.TrimSpace(a) })
	if right {
		return newScore(r.cfg.Score, 0, 0, true, true), nil
	}
	return newScore(r.cfg.Score, 0, r.cfg.FormatScore, ok, false), nil
}

// Ballot is the number in a text.
func (r *GSM8KReward) Ballot(text string) string {
	number, _ := GSM8K(text, r.cfg.Method)
	return number
}

// Same is false: numbers are compared to the letter.
func (r *GSM8KReward) Same(_, _ string) bool { return false }

// GSM8KType is the reward gsm8k.
func GSM8KType() rewards.Type {
	return rewards.NewType("gsm8k", func() GSM8KConfig { return GSM8KConfig{Method: Strict, Score: 1} }, openGSM8KReward)
}

// openGSM8KReward makes the reward.
func openGSM8KReward(_ context.Context, cfg GSM8KConfig, o rewards.Opening) (producers.Reward, error) {
	return &GSM8KReward{cfg}, cfg.Validate()
}
