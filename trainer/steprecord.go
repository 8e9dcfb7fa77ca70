package trainer

import (
	"math"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// batchRecord returns a batch's groups in the form of a record; none for a nil batch. learnt are the step's numbers.
func batchRecord(b *batch.Batch, learnt *learner.Stats) (groups []checkpoint.RecordGroup) {
	if b == nil {
		return nil
	}
	var advantages []float64
	if learnt != nil {
		advantages = learnt.Advantages
	}
	for _, g := range b.Groups {
		group := checkpoint.RecordGroup{Group: g.ID(), Size: g.Size, Source: g.Source()}
		if g.Ticket != nil {
			group.Task, group.Prompt = g.Ticket.Task, g.Ticket.Prompt.ID
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

func memberRecord(m batch.Member) checkpoint.RecordMember {
	return checkpoint.RecordMember{
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

// dropRecord returns a group that is not trained on in the form of a record.
func dropRecord(g batch.Group, reason schemas.Reason, reissue bool) checkpoint.RecordDrop {
	drop := checkpoint.RecordDrop{Group: g.ID(), Cursor: g.Cursor, Reason: reason, Reissue: reissue, Size: g.Size, Source: g.Source()}
	if g.Ticket != nil {
		drop.Task, drop.Prompt = g.Ticket.Task, g.Ticket.Prompt.ID
	}
	return drop
}
