package relearn

import (
	"fmt"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// NewBatch puts the trajectories that a step used up together again as the batch that the step trained on: in its order, and with the
// samples that its selection passed over. kept are the deliveries of [checkpoint.ReadBatch]; cfg shapes their rewards.
func NewBatch(cfg learner.Config, r *checkpoint.Record, kept []schemas.Delivery) (*batch.Batch, error) {
	b := &batch.Batch{Version: r.Step - 1, Use: r.Use}
	member := func(was checkpoint.RecordMember) (batch.Member, error) {
		if len(kept) == 0 || kept[0].Trajectory == nil || kept[0].Trajectory.ID != was.ID {
			return batch.Member{}, fmt.Errorf("batch of step %d: its record has trajectory %s where the kept batch has another", r.Step, was.ID)
		}
		m := batch.NewMember(kept[0], cfg.Shape)
		m.PassedOver = was.PassedOver
		kept = kept[1:]
		return m, nil
	}
	for i := range r.Groups {
		was := &r.Groups[i]
		taken := batch.Taken{Group: batch.Group{Size: was.Size, HasBaseline: was.Baseline != nil}}
		for _, w := range was.Members {
			m, err := member(w)
			if err != nil {
				return nil, err
			}
			// The selection draws by them.
			taken.Cursor, taken.Attempt = m.Trajectory.Cursor, m.Trajectory.Attempt
			taken.Members = append(taken.Members, m)
		}
		if was.Baseline != nil {
			m, err := member(*was.Baseline)
			if err != nil {
				return nil, err
			}
			taken.Baseline = &m
		}
		b.Groups = append(b.Groups, taken)
	}
	if len(kept) > 0 {
		return nil, fmt.Errorf("batch of step %d: %d trajectories are kept that its record does not have", r.Step, len(kept))
	}
	return b, nil
}
