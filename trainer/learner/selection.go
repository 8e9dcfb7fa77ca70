package learner

import (
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/selection"
)

// Keep reports whether a group is worth training on. Its random number follows from the run's seed and the group, so that a trainer that
// reads the stream again decides the same.
func (c Config) Keep(g batch.Group, rewards []float64) bool {
	u := float64(batch.Seed(c.Seed, g.Cursor, g.Attempt, -1)>>11) / (1 << 53)
	kept, err := c.Selection.Keep(rewards, u)
	return kept || err != nil // rewards were checked when they came: none is empty or not finite
}

// Choose returns the indices of the samples of a group that are compared with each other. With resample best all samples are compared.
func (c Config) Choose(g batch.Group, members []batch.Member) []int {
	if c.Selection.Resample.By == selection.ResampleCorrect {
		return c.resampleGroup(g, members)
	}
	all := make([]int, len(members))
	for i := range all {
		all[i] = i
	}
	return all
}

// resampleGroup returns the indices of the samples of a group that are trained on. Its random numbers follow from the seed and the group,
// as in Keep.
func (c Config) resampleGroup(g batch.Group, members []batch.Member) []int {
	rewards, penalties := make([]float64, len(members)), make([]float64, len(members))
	for i, m := range members {
		rewards[i], penalties[i] = m.Return, formatPenalty(m.Trajectory)
		if c.Selection.Resample.By == selection.ResampleCorrect {
			rewards[i] = m.Trajectory.Reward // a right answer stays right however long it took
		}
	}
	taken, _ := c.Selection.Resample.Choose(rewards, penalties, rand.New(rand.NewPCG(batch.Seed(c.Seed, g.Cursor, g.Attempt, -2), 0)))
	return taken // rewards were checked when they came: all are finite
}

// formatPenalty returns the share of a rollout's tool calls that failed, a half if there were none, plus the share of its turns that
// neither called a tool nor answered, 1 if there is no answer (rStar2-Agent, section 3.2).
func formatPenalty(t *schemas.Trajectory) float64 {
	calls, failed, idle := 0, 0, 0
	for _, turn := range selectionTurns(t) {
		if !turn.Called && !turn.Answered {
			idle++
		}
	}
	for _, turn := range t.Turns {
		for _, call := range turn.Calls {
			calls++
			if call.Failed {
				failed++
			}
		}
	}
	out := 0.5
	if calls > 0 {
		out = float64(failed) / float64(calls)
	}
	if t.Stop != schemas.StopAnswer {
		return out + 1
	}
	return out + float64(idle)/float64(max(1, len(t.Turns)))
}

// Shape is the change of a rollout's reward by its length.
func (c Config) Shape(t *schemas.Trajectory) float64 {
	return c.Selection.Overlong.Penalty(t.ActionTokens())
}

// silencedTrajectories returns the trajectories of a batch, by number, that leave the loss although their rewards count.
func (c Config) silencedTrajectories(b *batch.Batch) map[int]bool {
	out := map[int]bool{}
	n := 0
	for _, g := range b.Groups {
		byRank := c.Selection.Resample.By == selection.ResampleBest
		var best []int
		if byRank {
			best = c.resampleGroup(g.Group, g.Members)
		}
		for i, m := range g.Members {
			if m.PassedOver {
				continue
			}
			if byRank && !slices.Contains(best, i) || c.Selection.Overlong.Masks(isCutOff(m.Trajectory.Stop)) || c.Selection.DropVoid && selection.Void(selectionTurns(m.Trajectory)) {
				out[n] = true
			}
			n++
		}
	}
	return out
}

// isCutOff reports whether a limit ended the rollout.
func isCutOff(stop schemas.StopReason) bool {
	return stop == schemas.StopTokens || stop == schemas.StopTimeout || stop == schemas.StopTurns
}

func selectionTurns(t *schemas.Trajectory) []selection.Turn {
	turns := make([]selection.Turn, len(t.Turns))
	for i, turn := range t.Turns {
		last := i == len(t.Turns)-1
		turns[i] = selection.Turn{Called: len(turn.Calls) > 0, Answered: last && t.Stop == schemas.StopAnswer}
	}
	return turns
}
