package advantage

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// formula fills the advantages of a group.
type formula func(e *outcome, g group) error

// grpoFormula compares each trajectory with its group (DeepSeekMath, arXiv 2402.03300, section 4.1.2; without the
// deviation it is Dr. GRPO, arXiv 2503.20783):
//
//	A_i = (R_i - mean(R)) / (std(R) + epsilon)
func grpoFormula(keys Scaling) formula {
	return func(e *outcome, g group) error {
		mean, std := e.meanAndStd(g.rewards)
		scale := 1.0
		if keys.DivideByStd {
			scale = 1 / (std + keys.StdEpsilon)
		}
		for i, r := range g.rewards {
			g.advantages[i] = (r - mean) * scale
		}
		return nil
	}
}

// centredFormula subtracts the group's mean alone: Dr. GRPO, the baseline of REINFORCE++-baseline.
//
//	A_i = R_i - mean(R)
func centredFormula(e *outcome, g group) error {
	mean, _ := e.meanAndStd(g.rewards)
	for i, r := range g.rewards {
		g.advantages[i] = r - mean
	}
	return nil
}

// meanAndStd returns the mean and the unbiased deviation of a group's rewards. A group of one trajectory has deviation 1, and its reward or
// 0 as its mean, by the key single.
func (e *outcome) meanAndStd(rewards []float64) (mean, std float64) {
	if len(rewards) == 1 {
		return e.singleBaseline(rewards[0]), 1
	}
	mean, std = stats.MeanStd(rewards)
	if e.VarianceFloor > 0 {
		std = max(std, math.Sqrt(e.VarianceFloor))
	}
	return mean, std
}

// singleBaseline returns the baseline of a group of one trajectory.
func (a Alone) singleBaseline(reward float64) float64 {
	if a.Single == SingleReward {
		return 0
	}
	return reward
}

// passKFormula credits only the best of a group, by its lead over the second (arXiv 2503.19595):
//
//	A_best = (R_best - R_second) / (std(R) + epsilon), else 0
func passKFormula(keys Scaling) formula {
	return func(e *outcome, g group) error {
		if g.size < 2 {
			return stats.Fault("Group", -1, "a group of %d: pass@k compares at least two", g.size)
		}
		if len(g.rewards) >= 2 {
			e.creditBest(keys, g)
		}
		return nil
	}
}

// creditBest is passKFormula of a group of two or more trajectories.
func (e *outcome) creditBest(keys Scaling, g group) {
	best, first, second := 0, math.Inf(-1), math.Inf(-1)
	for i, r := range g.rewards {
		if r > first {
			best, first, second = i, r, first
		} else {
			second = max(second, r)
		}
	}
	lead := first - second
	if keys.DivideByStd {
		_, std := e.meanAndStd(g.rewards)
		lead /= std + keys.StdEpsilon
	}
	clear(g.advantages)
	g.advantages[best] = lead
}

// rlooFormula compares each trajectory with the others of its group (arXiv 2402.14740):
//
//	A_i = R_i - sum_{j != i} R_j / (n - 1) = (R_i - mean(R)) n / (n - 1)
func rlooFormula(e *outcome, g group) error {
	n := float64(len(g.rewards))
	if n == 1 {
		g.advantages[0] = g.rewards[0] - e.singleBaseline(g.rewards[0])
		return nil
	}
	mean, _ := stats.MeanStd(g.rewards)
	for i, r := range g.rewards {
		g.advantages[i] = r*n/(n-1) - mean*n/(n-1)
	}
	return nil
}

// opoFormula compares with the mean weighted by length, the baseline of least variance (arXiv 2505.23585):
//
//	A_i = R_i - sum_j len_j R_j / sum_j len_j
func opoFormula(e *outcome, g group) error {
	if len(g.rewards) == 1 {
		g.advantages[0] = g.rewards[0] - e.singleBaseline(g.rewards[0])
		return nil
	}
	var weighted, length float64
	for i, r := range g.rewards {
		weighted += g.lengths[i] * r
		length += g.lengths[i]
	}
	baseline := stats.Divide(weighted, length)
	if length == 0 && e.EmptyNaN {
		baseline = math.NaN()
	}
	for i, r := range g.rewards {
		g.advantages[i] = r - baseline
	}
	return nil
}

// gpgFormula scales the centred rewards up by how few rewards of the batch are not 0 (arXiv 2504.02546):
//
//	A_i = alpha (R_i - mean(R)) / norm,  alpha = trajectories / max(1, trajectories with a reward)
func gpgFormula(norm float64) formula {
	return func(e *outcome, g group) error {
		alpha := float64(e.totals.trajectories) / float64(max(1, e.totals.rewarded))
		mean, _ := e.meanAndStd(g.rewards)
		for i, r := range g.rewards {
			g.advantages[i] = alpha * (r - mean) / norm
		}
		return nil
	}
}

// maxRLFormula divides by the group's mean, which follows the gradient of the likelihood of success (prime-rl):
//
//	A_i = (R_i - mean(R)) / mean(R), and 0 where mean(R) <= 0
func maxRLFormula(_ *outcome, g group) error {
	mean, _ := stats.MeanStd(g.rewards)
	for i, r := range g.rewards {
		g.advantages[i] = 0
		if mean > 0 {
			g.advantages[i] = (r - mean) / mean
		}
	}
	return nil
}

// maxBaselines bounds the agents that rae keeps a running mean for; further agents share the mean of otherAgents. Trajectories name the
// agents, and the means are in every checkpoint.
const (
	maxBaselines = 1024
	otherAgents  = -1
)

// raeFormula compares each trajectory with its agent's running mean, which it then moves (SPIRAL, arXiv 2506.24119):
//
//	A_i = R_i - b;  b = decay b + (1 - decay) R_i
func raeFormula(decay float64) formula {
	return func(e *outcome, g group) error {
		if e.baselines == nil {
			e.baselines = map[int]float64{}
		}
		for i, r := range g.rewards {
			agent := g.agents[i]
			b, known := e.baselines[agent]
			if !known && len(e.baselines) >= maxBaselines {
				agent = otherAgents
				b = e.baselines[agent]
			}
			g.advantages[i] = r - b
			e.baselines[agent] = decay*b + (1-decay)*r
		}
		return nil
	}
}

// regroupByAgent groups by (prompt group, agent), but agents with a role of EpisodeAgents by (episode, role). Without agents each group has
// a single agent, and without roles or episodes no agent is compared within an episode.
func regroupByAgent(roles []string) func(e *outcome, b *Batch) error {
	return func(e *outcome, b *Batch) error {
		rows := b.Rows()
		if err := stats.CheckLength("Group", b.Group, rows); err != nil {
			return err
		}
		if err := checkOptional("Agent", b.Agent, rows); err != nil {
			return err
		}
		if err := checkOptional("Episode", b.Episode, rows); err != nil {
			return err
		}
		if err := checkOptional("Role", b.Role, rows); err != nil {
			return err
		}
		type key struct {
			group, agent, episode int
			role                  string
		}
		ids := map[key]int{}
		e.groupIDs = stats.Resize(e.groupIDs, rows)
		for i := range rows {
			k := key{group: b.Group[i]}
			if b.Agent != nil {
				k.agent = b.Agent[i]
			}
			if b.Role != nil && b.Episode != nil && slices.Contains(roles, b.Role[i]) {
				k = key{episode: b.Episode[i], role: b.Role[i]}
			}
			id, ok := ids[k]
			if !ok {
				id = len(ids)
				ids[k] = id
			}
			e.groupIDs[i] = id
		}
		return nil
	}
}
