package servers

import (
	"math"
	"slices"
)

// ends compares how often answers of a server end at a stop token with the probability of that. At each token of a watched call the
// server sends the probability of a stop; in answers that nobody selects by their ends, the sum of these probabilities and the number of
// sampled stops differ by no more than chance. A server that looks at no stop, or a client that keeps only answers of some sort, differs.
type ends struct {
	// sampled counts stops, expected is the sum of their probabilities, variance that of the difference.
	sampled, expected, variance float64
	// next is how many ends there are when a bias is logged again.
	next float64
}

const (
	// firstEnds is from how many ends on a bias is reported.
	firstEnds = 20
	// mostDeviation is how many standard deviations are taken for chance.
	mostDeviation = 5
)

// addAnswer counts the tokens of an answer that was kept. likely has the most likely tokens for each. The last of a list is passed over,
// since a server may put the sampled token in its place: which stops are counted must not depend on the sampled token.
func (e *ends) addAnswer(tokens []int32, likely [][]Likely, stops []int32) (sampled, expected float64) {
	for i, token := range tokens[:min(len(tokens), len(likely))] {
		list := likely[i]
		for _, l := range list[:max(min(len(list), Alternatives)-1, 0)] {
			if math.IsNaN(float64(l.Logprob)) || !slices.Contains(stops, l.Token) {
				continue
			}
			p := min(math.Exp(float64(l.Logprob)), 1)
			expected += p
			e.variance += p * (1 - p)
			if l.Token == token {
				sampled++
			}
		}
	}
	e.sampled += sampled
	e.expected += expected
	return sampled, expected
}

// deviation is how many standard deviations the sampled stops lie above the expected stops.
func (e *ends) deviation() float64 { return (e.sampled - e.expected) / math.Sqrt(e.variance+1) }

// isBiased reports whether a bias is to be logged: when it is first seen, and whenever there are twice as many ends as then.
func (e *ends) isBiased() bool {
	n := max(e.sampled, e.expected)
	if n < max(e.next, firstEnds) || math.Abs(e.deviation()) <= mostDeviation {
		return false
	}
	e.next = 2 * n
	return true
}

// watchesEnds reports whether the ends of a call are watched: every inference.server.ends_every-th call of a server that has stops, however
// calls are spread over the servers. At temperature 0 nothing is drawn.
func (c *call) watchesEnds(s *server) bool {
	every := c.pool.cfg.Server.EndsEvery
	return every > 0 && len(c.req.StopTokens) > 0 && c.req.Temperature > 0 && s.watched.Add(1)%int64(every) == 0
}

// countEnds takes the tokens of an answer into the server's ends, and reports a bias.
func (s *server) countEnds(tokens []int32, likely [][]Likely, stops []int32) {
	if len(likely) == 0 {
		return
	}
	p := s.pool
	p.mu.Lock()
	sampled, expected := s.state.ends.addAnswer(tokens, likely, stops)
	now, report := s.state.ends, s.state.ends.isBiased()
	if !s.state.removed { // the metrics of a server that is gone are gone
		p.metrics.Ends.WithLabelValues(s.name).Add(sampled)
		p.metrics.EndsExpected.WithLabelValues(s.name).Add(expected)
		p.metrics.EndsDeviation.WithLabelValues(s.name).Set(now.deviation())
	}
	p.mu.Unlock()
	if report {
		p.log.Warn("answers of an inference server end at their stops more or less often than its probabilities say: what is trained on is biased",
			"server", s.name, "ends", now.sampled, "expected", math.Round(now.expected), "standard_deviations", math.Round(now.deviation()))
	}
}
