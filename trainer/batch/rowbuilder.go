package batch

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// rowBuilder is a batch that is being laid out.
type rowBuilder struct {
	*Rows
	// baselines is set if every group has a baseline.
	baselines bool
	// values is set if every trajectory brings the values of its states.
	values bool
	// group is the number of the group in hand, apart is set if it is credited by agent, and greedy has its baseline's returns.
	group  int
	apart  bool
	greedy greedyReturns
	// groups are the part groups of the group in hand by agent, peers how many parts each part group of the batch has that
	// is of an agent.
	groups map[string]int
	peers  []int
	// parts is the number of parts so far.
	parts int
}

// greedyReturns are the returns of a group's baseline: as a whole, and by agent.
type greedyReturns struct {
	whole float64
	of    map[string]float64
}

// rowPart is the part of an agent in a trajectory, or the whole trajectory where it is not credited by agent.
type rowPart struct {
	number, group int
	reward        float64
	// last is its last sampled token.
	last int
}

// beginGroup turns to the next group.
func (l *rowBuilder) beginGroup(g Taken) {
	l.apart, l.groups, l.greedy = hasAgentRewards(g.Members), map[string]int{}, greedyReturns{}
	if !l.baselines {
		return
	}
	l.greedy.whole = g.Baseline.Return
	if l.apart {
		l.greedy.of = g.Baseline.agentReturns()
	}
}

// partAgent returns the agent whose part a segment belongs to: "" where the group is not credited by agent.
func (l *rowBuilder) partAgent(s *schemas.Segment) string {
	if l.apart {
		return s.Agent
	}
	return ""
}

// beginPart begins the part of an agent in the trajectory in hand.
func (l *rowBuilder) beginPart(m *Member, agent string) *rowPart {
	group, known := l.groups[agent]
	if !known {
		group = len(l.peers)
		l.groups[agent] = group
		l.peers = append(l.peers, 0)
	}
	p := &rowPart{number: l.parts, group: group, reward: m.Reward}
	if l.apart {
		p.reward = m.agentReward(agent)
		l.peers[group]++
	}
	l.parts++
	return p
}

// baselineReturn returns the return that an agent's parts are compared with: the agent's in the greedy rollout, or the whole rollout's
// where the agent took no part in it.
func (l *rowBuilder) baselineReturn(agent string) float64 {
	if of, acted := l.greedy.of[agent]; acted {
		return of
	}
	return l.greedy.whole
}

// addMember lays a member of the group in hand out.
func (l *rowBuilder) addMember(m *Member) {
	t := m.Trajectory
	parts, order := map[string]*rowPart{}, []*rowPart(nil)
	starts := make([]int, len(t.Segments))
	step := 0
	for i := range t.Segments {
		s := &t.Segments[i]
		starts[i] = -1
		if !slices.Contains(s.ActionMask, 1) {
			continue
		}
		agent := l.partAgent(s)
		p := parts[agent]
		if p == nil {
			p = l.beginPart(m, agent)
			parts[agent], order = p, append(order, p)
		}
		starts[i] = len(l.Tokens)
		p.last = l.appendTokens(s)
		l.endRow(p, agent, step)
		l.Temperature, l.Stop = append(l.Temperature, s.Temperature), append(l.Stop, t.Stop)
		step++
	}
	l.Trajectories++
	for _, p := range order {
		l.Rewards[p.last] += p.reward
	}
	for i := range t.Turns {
		turn := &t.Turns[i]
		start := starts[turn.Segment]
		if start >= 0 {
			for i := start + turn.Start; i < start+turn.End; i++ {
				l.Seconds[i] = turn.Duration().Seconds()
			}
		}
		if l.values && start >= 0 && i < len(t.Values) {
			value := t.Values[i].Mean
			if t.Values[i].Samples == 0 {
				value = math.NaN()
			}
			for k := start + turn.Start; k < start+turn.End; k++ {
				l.StateValues[k] = value
			}
		}
		switch p := parts[l.partAgent(&t.Segments[turn.Segment])]; {
		case start >= 0 && turn.End > 0:
			l.Rewards[start+turn.End-1] += turn.Credit()
		case p != nil:
			l.Rewards[p.last] += turn.Credit()
		}
	}
}

// appendTokens appends the tokens of a segment, and returns the index of the last sampled token.
func (l *rowBuilder) appendTokens(s *schemas.Segment) (last int) {
	for j, tok := range s.Tokens {
		l.Tokens = append(l.Tokens, tok)
		l.Mask = append(l.Mask, s.ActionMask[j])
		l.Versions = append(l.Versions, s.Versions[j])
		l.Behaviour = append(l.Behaviour, float64(s.Logprobs[j]))
		l.Rewards = append(l.Rewards, 0)
		l.Seconds = append(l.Seconds, 0)
		if l.values {
			l.StateValues = append(l.StateValues, 0)
		}
		if s.ActionMask[j] == 1 {
			last = len(l.Tokens) - 1
		}
	}
	return last
}

// endRow ends a row after its tokens.
func (l *rowBuilder) endRow(p *rowPart, agent string, step int) {
	l.Offsets = append(l.Offsets, len(l.Tokens))
	l.Group, l.Trajectory, l.Step = append(l.Group, l.group), append(l.Trajectory, l.Trajectories), append(l.Step, step)
	l.Part, l.PartGroup, l.Agent = append(l.Part, p.number), append(l.PartGroup, p.group), append(l.Agent, agentNumber(agent))
	l.Role = append(l.Role, schemas.Role(agent))
	if l.baselines {
		l.Baselines = append(l.Baselines, l.baselineReturn(agent))
	}
}
