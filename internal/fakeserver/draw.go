package fakeserver

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// choice is a token that may be drawn.
type choice struct {
	token       int32
	raw, logit  float64
	probability float64 // among the tokens that are left
}

// drawToken samples as the servers do with top_k, top_p, min_p and penalties, from the log-probabilities of all tokens at temperature 1.
func (s *sequence) drawToken(all []gpu.TokenLogprob) sampled {
	choices := s.cutChoices(s.rankChoices(all))
	u, picked := s.random.Float64(), choices[len(choices)-1]
	for _, c := range choices {
		if u < c.probability {
			picked = c
			break
		}
		u -= c.probability
	}
	number := func(c choice) float64 {
		if s.p.raw {
			return c.raw
		}
		return math.Log(c.probability)
	}
	out := sampled{token: picked.token, logprob: number(picked)}
	for _, c := range choices[:min(s.p.top, len(choices))] {
		out.tops = append(out.tops, likely{c.token, number(c)})
	}
	// Tokens that are cut off have no probability at all.
	for _, x := range all {
		if len(out.tops) < s.p.top && !slices.ContainsFunc(choices, func(c choice) bool { return c.token == x.Token }) {
			n := math.Inf(-1)
			if s.p.raw {
				n = float64(x.Logprob)
			}
			out.tops = append(out.tops, likely{x.Token, n})
		}
	}
	return out
}

// rankChoices applies the repetition penalty and the temperature, and sorts the tokens, the likeliest first.
func (s *sequence) rankChoices(all []gpu.TokenLogprob) []choice {
	choices := make([]choice, len(all))
	for i, x := range all {
		logit := float64(x.Logprob)
		if s.p.rep != 1 && slices.Contains(s.tokens, x.Token) {
			logit *= s.p.rep // they are negative
		}
		if s.p.temperature > 0 {
			logit /= s.p.temperature
		}
		choices[i] = choice{token: x.Token, raw: float64(x.Logprob), logit: logit}
	}
	slices.SortStableFunc(choices, func(a, b choice) int {
		switch {
		case a.logit > b.logit:
			return -1
		case a.logit < b.logit:
			return 1
		}
		return 0
	})
	return choices
}

// cutChoices keeps the tokens that top_k, top_p and min_p leave, with their probabilities. choices are sorted.
func (s *sequence) cutChoices(choices []choice) []choice {
	if s.p.topK > 0 {
		choices = choices[:min(s.p.topK, len(choices))]
	}
	if s.p.temperature == 0 {
		choices = choices[:1]
	}
	normalizeChoices(choices)
	sum, keep := 0.0, len(choices)
	for i, c := range choices {
		if sum >= s.p.topP || c.probability < s.p.minP*choices[0].probability {
			keep = i
			break
		}
		sum += c.probability
	}
	choices = choices[:keep]
	normalizeChoices(choices)
	return choices
}

// normalizeChoices sets the probabilities of tokens of which the likeliest is the first.
func normalizeChoices(choices []choice) {
	total := 0.0
	for i := range choices {
		choices[i].probability = math.Exp(choices[i].logit - choices[0].logit)
		total += choices[i].probability
	}
	for i := range choices {
		choices[i].probability /= total
	}
}
