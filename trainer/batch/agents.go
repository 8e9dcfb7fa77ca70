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

// Where trajectories of a group have rewards of single agents, the group is credited by agent: the segments of a trajectory that name an
// agent are a part, which has the agent's reward and is compared with the same agent's parts in the other trajectories of the group.
// Elsewhere a whole trajectory is a single part.

// hasAgentRewards reports whether a group is credited by agent: a member that is trained on has rewards of single agents. An agent without
// a reward of its own has the trajectory's, so that the members need not all have agent rewards.
func hasAgentRewards(members []Member) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return !m.PassedOver && len(m.Trajectory.AgentRewards) > 0 })
}

// agentReward is the outcome reward of an agent with its shaping, which is the whole trajectory's.
func (m *Member) agentReward(agent string) float64 {
	if reward, apart := m.Trajectory.AgentRewards[agent]; apart {
		return reward + m.Shaping
	}
	return m.Reward
}

// agentReturns are the returns of the agents that sampled a token, by name: the reward, and the credit of their own turns.
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

// comparedReturns returns the rewards that Keep is called with. Without agent rewards these are the returns of the members that are trained
// on. With agent rewards they are the returns of each agent that acted in several members or, if every agent acted in a single member, of
// each agent. Agents with a role in within are put together by trajectory.
func comparedReturns(members []Member, within []string) [][]float64 {
	if !hasAgentRewards(members) {
		var all []float64
		for _, m := range members {
			if !m.PassedOver {
				all = append(all, m.Return)
			}
		}
		return [][]float64{all}
	}
	of := map[peerKey][]float64{}
	for k, m := range members {
		if m.PassedOver {
			continue
		}
		mine := m.agentReturns()
		for _, agent := range slices.Sorted(maps.Keys(mine)) {
			who := peerKey{name: agent}
			if role := schemas.Role(agent); slices.Contains(within, role) {
				who = peerKey{name: role, trajectory: k + 1}
			}
			of[who] = append(of[who], mine[agent])
		}
	}
	var apart, alone [][]float64
	for _, who := range slices.SortedFunc(maps.Keys(of), peerKey.comparePeers) {
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

// peerKey names parts that are compared with each other: the parts of an agent in a group, or of a role in the trajectory of this number,
// from 1.
type peerKey struct {
	name       string
	trajectory int
}

func (p peerKey) comparePeers(q peerKey) int {
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

// checkAgents refuses names that are too long, and rewards of agents that took no part, which would be credited to no token.
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

// checkAgentRewards checks the rewards of single agents, and their returns, with check.
func (m *Member) checkAgentRewards(check func(what string, x float64) error) error {
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
