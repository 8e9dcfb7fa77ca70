package branch

import (
	"math"

	"github.com/weir-rl/weir/schemas"
)

// Point is a place to fork.
type Point struct {
	// Trunk is the index of the trajectory among the trunks.
	Trunk int
	// Turns is how many of its first turns a fork takes over, 0 < Turns < len(Trajectory.Turns).
	Turns int
	// Rise is how much higher the entropy is in the next turn than in the first turn, over ln(vocab).
	Rise float64
}

// Choose returns the places of at most this many forks, in the order in which they are taken; fewer where no place exceeds the threshold.
// It depends on its arguments alone. vocab is the size of the vocabulary, above 1.
//
//	worth = (alpha + gamma * rise) * (1 - min(1, penalty * l)),  rise = (H_t - H_0) / ln vocab
//
// H is the mean negative log-probability of a turn's first tokens: trajectories hold no entropies, and the expectation of -ln p(token) under
// the policy that drew the token is the entropy. ARPO normalizes by the vocabulary; l, the forks that the trunk has, stands for the
// consecutive branches of AEPO, whose penalty is linear in them too. A turn is a place only where a tool answered just before it, as in both.
func Choose(c Config, trunks []*schemas.Trajectory, forks, vocab int) []Point {
	best := make([]*Point, len(trunks)) // of each trunk, its most unsure turn: the order of a trunk's turns does not change with l
	for i, t := range trunks {
		best[i] = c.leastCertain(i, t, vocab)
	}
	taken := make([]int, len(trunks))
	var out []Point
	for len(out) < forks {
		at, worth := -1, c.Threshold
		for i, p := range best {
			if p == nil {
				continue
			}
			w := (c.Alpha + c.Gamma*p.Rise) * (1 - min(1, c.Penalty*float64(taken[i])))
			if w > worth {
				at, worth = i, w
			}
		}
		if at < 0 {
			return out
		}
		taken[at]++
		out = append(out, *best[at])
	}
	return out
}

// leastCertain returns the place of a trajectory with the highest rise, the first of equal places; nil where it has none.
func (c Config) leastCertain(trunk int, t *schemas.Trajectory, vocab int) *Point {
	if len(t.Turns) < 2 || severalAgents(t) {
		return nil
	}
	var best *Point
	first := c.turnEntropy(t, 0)
	tokens := newPrefix(t)
	for turn := 1; turn < len(t.Turns); turn++ {
		if len(t.Turns[turn-1].Calls) == 0 || tokens.countTokens(turn) > c.MaxTokens {
			continue
		}
		rise := (c.turnEntropy(t, turn) - first) / math.Log(float64(vocab))
		if best == nil || rise > best.Rise {
			best = &Point{trunk, turn, rise}
		}
	}
	return best
}

// severalAgents reports whether several agents act in turns: another episode need not keep the order of their moves.
func severalAgents(t *schemas.Trajectory) bool {
	for i := range t.Segments {
		if t.Segments[i].Agent != t.Segments[0].Agent {
			return true
		}
	}
	return false
}

// turnEntropy estimates the entropy of the first tokens of a turn, in nats.
func (c Config) turnEntropy(t *schemas.Trajectory, turn int) float64 {
	u := &t.Turns[turn]
	logprobs := t.Segments[u.Segment].Logprobs[u.Start:u.End]
	logprobs = logprobs[:min(len(logprobs), c.Tokens)]
	sum := 0.0
	for _, lp := range logprobs {
		sum -= float64(lp)
	}
	return sum / float64(max(1, len(logprobs)))
}

// prefixCounter counts the tokens that a fork of a trajectory takes over.
type prefixCounter struct {
	t *schemas.Trajectory
	// whole is how many tokens the segments before the segment in hand have.
	whole, segment int
}

func newPrefix(t *schemas.Trajectory) *prefixCounter { return &prefixCounter{t: t} }

// countTokens counts the tokens up to the end of a number of first turns. The number must not fall from call to call.
func (p *prefixCounter) countTokens(turns int) int {
	last := &p.t.Turns[turns-1]
	for p.segment < last.Segment {
		p.whole += len(p.t.Segments[p.segment].Tokens)
		p.segment++
	}
	return p.whole + last.End
}
