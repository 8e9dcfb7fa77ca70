package checkpoint

import (
	"math"

	"github.com/weir-rl/weir/trainer/batch"
)

// RecordBatch returns a batch's groups in the form of a record; none for a nil batch. advantages has the advantage of each member that was
// trained on, in the batch's order; nil where they are not known.
func RecordBatch(b *batch.Batch, advantages []float64) (groups []RecordGroup) {
	if b == nil {
		return nil
	}
	for _, g := range b.Groups {
		group := RecordGroup{Group: g.ID(), Size: g.Size, Source: g.Source()}
		if used := g.Used(); g.Ticket != nil {
			group.Task, group.Prompt = g.Ticket.Task, g.Ticket.Prompt.ID
		} else if len(used) > 0 { // read from a kept batch
			t := used[0].Trajectory
			group.Task, group.Prompt, group.Source = t.Task, t.PromptID, t.Source
		}
		for _, m := range g.Members {
			member := memberRecord(m)
			if !m.PassedOver && len(advantages) > 0 {
				member.Advantage = finiteFloat32(advantages[0])
				advantages = advantages[1:]
			}
			group.Members = append(group.Members, member)
		}
		if g.Baseline != nil {
			baseline := memberRecord(*g.Baseline)
			group.Baseline = &baseline
		}
		groups = append(groups, group)
	}
	return groups
}

func memberRecord(m batch.Member) RecordMember {
	return RecordMember{
		ID: m.Trajectory.ID, Sequence: m.Sequence, Oldest: m.Oldest, Newest: m.Newest, Reward: m.Return,
		PassedOver: m.PassedOver,
	}
}

// finiteFloat32 returns a number in single precision; nil where JSON has none for it.
func finiteFloat32(x float64) *float32 {
	single := float32(x)
	if math.IsNaN(x) || math.IsInf(float64(single), 0) {
		return nil
	}
	return &single
}
