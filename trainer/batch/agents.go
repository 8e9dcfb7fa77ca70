package batch

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Where trajectories of a group bring rewards of single agents, the group is credited by agent: what an agent did in a
// trajectory, all segments that name it, is a part, which has the agent's reward and is compared with the same agent's parts
// in the other trajectories of the group. Elsewhere a trajectory is one part, whoever acted in it.

// byAgent says that a group is credited by agent: that a member which is trained on brings rewards of single agents. An agent
// that a trajectory gives no reward of its own has the trajectory's, so that the members need not all bring them.
func byAgent(members []Member) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return !m.PassedOver && len(m.Trajectory.AgentRewards) > 0 })
}

// agentReward is the outcome reward of an agent with its shaping, which is the whole trajectory's.
func (m *Member) agentReward(agent string) float64 {
	if reward, apart := m.Trajectory.AgentRewards[agent]; apart {
		return reward + m.Shaping
	}
	return m.Reward
}

// agentReturns are the returns of the agents that sampled a token, by name: the reward, and what their own turns were given.
func (m *Member) agentReturns() map[string]float64 {
	out := map[string]float64{}
	for i := range m.Trajectory.Segments {
		s := &m.Trajectory.Segments[i]
		if _, known := out[s.Agent]; !known && slices.Contains(s.ActionMask, 1) {
			out[s.Agent] = m.agentReward(s.Agent)
		}
	}
	for _, turn := range m.Trajectory.Turns {
		agent := m.Trajectory.Segments[turn.Segment].Agent
		if _, acted := out[agent]; acted {
			out[agent] += turn.Credit()
		}
	}
	return out
}

// returns are what Keep is asked about: the returns of the members that are trained on; by agent, those of each agent that
// some other member has too, and of every agent where none has. Those of the roles within are put together by trajectory.
func returns(members []Member, within []string) [][]float64 {
	if !byAgent(members) {
		var all []float64
		for _, m := range members {
			if !m.PassedOver {
				all = append(all, m.Return)
			}
		}
		return [][]float64{all}
	}
	of := map[peers][]float64{}
	for k, m := range members {
		if m.PassedOver {
			continue
		}
		mine := m.agentReturns()
		for _, agent := range slices.Sorted(maps.Keys(mine)) {
			who := peers{name: agent}
			if role := schemas.Role(agent); slices.Contains(within, role) {
				who = peers{name: role, trajectory: k + 1}
			}
			of[who] = append(of[who], mine[agent])
		}
	}
	var apart, alone [][]float64
	for _, who := range slices.SortedFunc(maps.Keys(of), peers.compare) {
		if len(of[who]) > 1 {
			apart = append(apart, of[who])
		} else {
			alone = append(alone, of[who])
		}
	}
	if apart == nil {
		return alone
	}
	return apart
}

// peers are compared with each other: the parts of one agent in a group, or of one role in the trajectory of this number, from 1.
type peers struct {
	name       string
	trajectory int
}

func (p peers) compare(q peers) int {
	return cmp.Or(cmp.Compare(p.name, q.name), cmp.Compare(p.trajectory, q.trajectory))
}

// agentNumber is the same number for an agent's name in every batch and process, 0 for no name.
func agentNumber(name string) int {
	if name == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return int(h.Sum64() & math.MaxInt64)
}

// checkAgents refuses names that are too long, and rewards of agents that took no part, which would be credited to nobody.
func checkAgents(t *schemas.Trajectory) error {
	took := map[string]bool{}
	for i := range t.Segments {
		name := t.Segments[i].Agent
		if len(name) > maxName {
			return fmt.Errorf("segment %d: the agent's name has %d bytes, at most %d", i, len(name), maxName)
		}
		took[name] = true
	}
	if len(t.AgentRewards) > maxAgents {
		return fmt.Errorf("agent_rewards: %d agents, at most %d", len(t.AgentRewards), maxAgents)
	}
	for _, name := range slices.Sorted(maps.Keys(t.AgentRewards)) {
		if len(name) > maxName {
			return fmt.Errorf("agent_rewards: an agent's name has %d bytes, at most %d", len(name), maxName)
		}
		if !took[name] {
			return fmt.Errorf("agent_rewards[%s]: no segment is of this agent: name it in the segments that it acted in, or leave its reward out", name)
		}
	}
	return nil
}

// agentsWithin holds the rewards of single agents, and what they come to, against the bounds that check knows.
func (m *Member) agentsWithin(check func(what string, x float64) error) error {
	if err := checkAgents(m.Trajectory); err != nil || len(m.Trajectory.AgentRewards) == 0 {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Trajectory.AgentRewards)) {
		if err := check("agent_rewards["+name+"]", m.Trajectory.AgentRewards[name]); err != nil {
			return err
		}
	}
	of := m.agentReturns()
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if err := check("agent_rewards["+name+"] with what its length adds", m.agentReward(name)); err != nil {
			return err
		}
		if err := check("return of agent "+name, of[name]); err != nil {
			return err
		}
	}
	return nil
}
