package trainer

import (
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/selection"
)

// keep says whether a group is worth training on. Its random number follows from the run's seed and the group, so
// that a trainer that reads the stream again decides the same.
func (c Config) keep(g batch.Group, rewards []float64) bool {
	u := float64(ticketSeed(c.Seed, g.Cursor, g.Attempt, -1)>>11) / (1 << 53)
	kept, err := c.Selection.Keep(rewards, u)
	return kept || err != nil // rewards were checked when they came: none is empty or not finite
}

// shape is what the length of a rollout adds to its reward.
func (c Config) shape(t *schemas.Trajectory) float64 {
	return c.Selection.Overlong.Penalty(t.ActionTokens())
}

// silenced are the trajectories of a batch, by number, that leave the loss although their rewards count.
func (c Config) silenced(b *batch.Batch) map[int]bool {
	out := map[int]bool{}
	n := 0
	for _, g := range b.Groups {
		for _, m := range g.Members {
			cutOff := m.Trajectory.Stop == schemas.StopTokens || m.Trajectory.Stop == schemas.StopTimeout || m.Trajectory.Stop == schemas.StopTurns
			if c.Selection.Overlong.Masks(cutOff) || c.Selection.DropVoid && void(m.Trajectory) {
				out[n] = true
			}
			n++
		}
	}
	return out
}

func void(t *schemas.Trajectory) bool {
	turns := make([]selection.Turn, len(t.Turns))
	for i, turn := range t.Turns {
		last := i == len(t.Turns)-1
		turns[i] = selection.Turn{Called: turn.Tool != "", Answered: last && t.Stop == schemas.StopAnswer}
	}
	return selection.Void(turns)
}
