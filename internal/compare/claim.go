package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/trainer/metrics"
)

// Claim is a sentence about two arms, or about an arm and a number:
//
//	TERM >= TERM                        grpo final >= gspo final
//	TERM <= 0.5 * TERM + 0.1            async processor <= 0.5 * sync processor
//	TERM >= 0.9                         grpo final >= 0.9
//	ARM reaches 0.9 in at most SHARE    grpo reaches 0.9 in at most half of gspo's steps
//
// A TERM is ARM METRIC, ARM steps to 0.9, ARM seconds to 0.9, ARM tokens to 0.9, ARM score at 400000 tokens or ARM area to 400000 tokens; a
// METRIC can be a key of metrics.jsonl too, such as policy/entropy: its mean over the last quarter of the steps. The operators are >=, >, <= and <. After "in at most" stands half of, a third of, a quarter
// of, 0.7 of or 2 times ARM's steps, ARM's steps, or a number such as 30 steps.
type Claim struct {
	// Text is the sentence.
	Text string
	// Left is compared with Factor times Right, plus Plus. Without Right it is compared with Plus.
	Left     Term
	Operator string
	Factor   float64
	Right    *Term
	Plus     float64
}

// Term is a number of an arm's run.
type Term struct {
	Arm, Metric string
	// Score belongs to the metrics steps, seconds and tokens to, Tokens to score at and area to.
	Score  float64
	Tokens float64
}

// The metrics of what it takes to a score: versions, and seconds of wall-clock since the first score.
const (
	metricSteps   = "steps"
	metricSeconds = "seconds"
)

// termMetrics are the metrics that a term can name, beside steps and seconds.
var termMetrics = []string{"final", "sampled", "area", "start", "end", "predicted", "fall", "tokens", "processor"}

// isRecordKey reports whether a metric is a key of metrics.jsonl, which all have a slash.
func isRecordKey(metric string) bool { return strings.Contains(metric, "/") }

// knownRecordKey reports whether a step can report a number of this key.
func knownRecordKey(key string) bool {
	for _, g := range metrics.Groups() {
		for _, k := range g.Keys {
			if prefix := k.Prefix(); k.Name == key || prefix != k.Name && strings.HasPrefix(key, prefix) && key != prefix {
				return true
			}
		}
	}
	return false
}

// ParseClaim reads a claim. The error quotes it.
func ParseClaim(text string) (Claim, error) {
	p := &claimParser{words: strings.Fields(text)}
	c := Claim{Text: strings.Join(p.words, " "), Factor: 1}
	c.Left.Arm = p.nextWord()
	var err error
	if p.takeWords("reaches") {
		err = p.parseReaches(&c)
	} else {
		err = p.parseComparison(&c)
	}
	if err == nil && len(p.words) > 0 {
		err = fmt.Errorf("%q is left over", strings.Join(p.words, " "))
	}
	if err != nil {
		return c, fmt.Errorf("%q: %w; want a claim such as \"a final >= b final\" or \"a reaches 0.9 in at most half of b's steps\"", text, err)
	}
	return c, nil
}

// arms are the arms that the claim names.
func (c *Claim) arms() []string {
	if c.Right == nil {
		return []string{c.Left.Arm}
	}
	return []string{c.Left.Arm, c.Right.Arm}
}

// claimParser takes words from the front.
type claimParser struct{ words []string }

func (p *claimParser) nextWord() string {
	if len(p.words) == 0 {
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

// takeWords takes the words if they come next.
func (p *claimParser) takeWords(words ...string) bool {
	if len(p.words) < len(words) || !slices.Equal(p.words[:len(words)], words) {
		return false
	}
	p.words = p.words[len(words):]
	return true
}

// takeNumber takes a number if one comes next.
func (p *claimParser) takeNumber() (float64, bool) {
	if len(p.words) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(p.words[0], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	p.words = p.words[1:]
	return v, true
}

func (p *claimParser) parseScore() (float64, error) {
	score, ok := p.takeNumber()
	if !ok || score <= 0 || score > 1 {
		return 0, errors.New("want a score above 0, at most 1")
	}
	return score, nil
}

// parseReaches reads what follows ARM reaches.
func (p *claimParser) parseReaches(c *Claim) (err error) {
	c.Left.Metric, c.Operator = metricSteps, "<="
	if c.Left.Score, err = p.parseScore(); err != nil {
		return err
	}
	if !p.takeWords("in", "at", "most") {
		return errors.New(`want "in at most" after the score`)
	}
	if n, ok := p.takeNumber(); ok {
		if p.takeWords("steps") {
			c.Plus = n
			return nil
		}
		if !p.takeWords("of") && !p.takeWords("times") {
			return errors.New(`want "of", "times" or "steps" after the number`)
		}
		c.Factor = n
	} else {
		c.Factor = p.takeShare()
	}
	arm, owns := strings.CutSuffix(p.nextWord(), "'s")
	if !owns || !p.takeWords("steps") || c.Factor <= 0 {
		return errors.New("want the steps of another arm, such as b's steps")
	}
	c.Right = &Term{Arm: arm, Metric: metricSteps, Score: c.Left.Score}
	return nil
}

// takeShare takes a share in words; without such words it is 1.
func (p *claimParser) takeShare() float64 {
	switch {
	case p.takeWords("half", "of"):
		return 1. / 2
	case p.takeWords("a", "third", "of"):
		return 1. / 3
	case p.takeWords("a", "quarter", "of"):
		return 1. / 4
	}
	return 1
}

// parseComparison reads what follows the first ARM of TERM OPERATOR TERM.
func (p *claimParser) parseComparison(c *Claim) (err error) {
	if err := p.parseMetric(&c.Left); err != nil {
		return err
	}
	c.Operator = p.nextWord()
	if !slices.Contains([]string{">=", ">", "<=", "<"}, c.Operator) {
		return fmt.Errorf("%q: want >=, >, <= or <", c.Operator)
	}
	if n, ok := p.takeNumber(); ok {
		if !p.takeWords("*") {
			c.Plus = n
			return nil
		}
		if c.Factor = n; n <= 0 {
			return errors.New("want a positive number before *")
		}
	}
	c.Right = &Term{Arm: p.nextWord()}
	if err := p.parseMetric(c.Right); err != nil {
		return err
	}
	sign := 0.0
	if p.takeWords("+") {
		sign = 1
	} else if p.takeWords("-") {
		sign = -1
	}
	if sign != 0 {
		n, ok := p.takeNumber()
		if !ok {
			return errors.New("want a number after + or -")
		}
		c.Plus = sign * n
	}
	return nil
}

func (p *claimParser) parseMetric(t *Term) (err error) {
	t.Metric = p.nextWord()
	if t.Metric == metricSteps || t.Metric == metricSeconds {
		if !p.takeWords("to") {
			return fmt.Errorf(`want "to" and a score after %s`, t.Metric)
		}
		t.Score, err = p.parseScore()
		return err
	}
	if read, err := p.parseTokens(t); read {
		return err
	}
	if isRecordKey(t.Metric) {
		if !knownRecordKey(t.Metric) {
			return fmt.Errorf("%q: want a key of docs/metrics.md, such as %s", t.Metric, metrics.PolicyEntropy.Name)
		}
		return nil
	}
	if !slices.Contains(termMetrics, t.Metric) {
		return fmt.Errorf("%q: want a metric: %s, steps, seconds or tokens to a score, score at or area to a number of tokens, "+
			"or a key of docs/metrics.md",
			t.Metric, strings.Join(termMetrics, ", "))
	}
	return nil
}
