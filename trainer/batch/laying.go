package batch

import (
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// laying is a batch that is being laid out.
type laying struct {
	*Rows
	// baselines says that every group has one.
	baselines bool
	// group is the number of the group in hand, apart whether it is credited by agent, and greedy what its baseline came to.
	group  int
	apart  bool
	greedy greedyReturns
	// groups are the part groups of the group in hand by agent, peers how many parts each part group of the batch has that
	// is of an agent.
	groups map[string]int
	peers  []int
	// parts is how many there are.
	parts int
}

// greedyReturns are what the baseline of a group came to: as a whole, and by agent.
type greedyReturns struct {
	whole float64
	of    map[string]float64
}

// part is what one agent did in a trajectory, or all of it where it is not credited by agent.
type part struct {
	number, group int
	reward        float64
	// last is its last sampled token.
	last int
}

// begin turns to the next group.
func (l *laying) begin(g Taken) {
	l.apart, l.groups, l.greedy = byAgent(g.Members), map[string]int{}, greedyReturns{}
	if !l.baselines {
		return
	}
	l.greedy.whole = g.Baseline.Return
	if l.apart {
		l.greedy.of = g.Baseline.agentReturns()
	}
}

// agent is the name that a segment's part goes by: "" for all where the group is not credited by agent.
func (l *laying) agent(s *schemas.Segment) string {
	if l.apart {
		return s.Agent
	}
	return ""
}

// part begins the part of an agent in the trajectory in hand.
func (l *laying) part(m *Member, agent string) *part {
	group, known := l.groups[agent]
	if !known {
		group = len(l.peers)
		l.groups[agent] = group
		l.peers = append(l.peers, 0)
	}
	p := &part{number: l.parts, group: group, reward: m.Reward}
	if l.apart {
		p.reward = m.agentReward(agent)
		l.peers[group]++
	}
	l.parts++
	return p
}

// baseline is what the parts of an agent are compared with: what the agent came to in the greedy rollout, or the whole rollout
// where the agent took no part in it.
func (l *laying) baseline(agent string) float64 {
	if of, acted := l.greedy.of[agent]; acted {
		return of
	}
	return l.greedy.whole
}

// add lays a member of the group in hand out.
func (l *laying) add(m *Member) {
	t := m.Trajectory
	parts, order := map[string]*part{}, []*part(nil)
	starts := make([]int, len(t.Segments))
	step := 0
	for i := range t.Segments {
		s := &t.Segments[i]
		starts[i] = -1
		if !slices.Contains(s.ActionMask, 1) {
			continue
		}
		agent := l.agent(s)
		p := parts[agent]
		if p == nil {
			p = l.part(m, agent)
			parts[agent], order = p, append(order, p)
		}
		starts[i] = len(l.Tokens)
		p.last = l.tokens(s)
		l.row(p, agent, step)
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
		switch p := parts[l.agent(&t.Segments[turn.Segment])]; {
		case start >= 0 && turn.End > 0:
			l.Rewards[start+turn.End-1] += turn.Credit()
		case p != nil:
			l.Rewards[p.last] += turn.Credit()
		}
	}
}

// tokens appends those of a segment, and returns the last that was sampled.
func (l *laying) tokens(s *schemas.Segment) (last int) {
	for j, tok := range s.Tokens {
		l.Tokens = append(l.Tokens, tok)
		l.Mask = append(l.Mask, s.ActionMask[j])
		l.Versions = append(l.Versions, s.Versions[j])
		l.Behaviour = append(l.Behaviour, float64(s.Logprobs[j]))
		l.Rewards = append(l.Rewards, 0)
		l.Seconds = append(l.Seconds, 0)
		if s.ActionMask[j] == 1 {
			last = len(l.Tokens) - 1
		}
	}
	return last
}

// row ends a row after its tokens.
func (l *laying) row(p *part, agent string, step int) {
	l.Offsets = append(l.Offsets, len(l.Tokens))
	l.Group, l.Trajectory, l.Step = append(l.Group, l.group), append(l.Trajectory, l.Trajectories), append(l.Step, step)
	l.Part, l.PartGroup, l.Agent = append(l.Part, p.number), append(l.PartGroup, p.group), append(l.Agent, agentNumber(agent))
	l.Role = append(l.Role, schemas.Role(agent))
	if l.baselines {
		l.Baselines = append(l.Baselines, l.baseline(agent))
	}
}
