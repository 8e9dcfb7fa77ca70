package trainer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// What a checkpoint carried was purged from the stream. Where the stream is lost then, the record says of each of these
// trajectories what became of it, by its place in the stream that was, though the step's checkpoint is written anew.
func TestWhatACheckpointCarriedIsAccountedForWhenItsStreamIsLost(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth, cfg.Checkpoint.Messages = 1, 1, 20
	w := newWorld(vocab)
	w.flat, w.room = 17, 90
	var carried []schemas.Delivery
	was := w.created
	asked := 0
	w.crash = func(at string) error {
		if at != "before next" || carried != nil {
			return nil
		}
		if asked++; asked%7 != 0 {
			return nil
		}
		steps, err := checkpoint.Steps(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		c, err := checkpoint.Read(checkpoint.StepDir(cfg.Checkpoint.Dir, steps[0]), steps[0])
		require.NoError(t, err)
		if len(c.Pending) == 0 {
			return nil
		}
		carried = c.Pending
		w.created = was.Add(time.Minute)
		w.messages, w.tickets, w.purged = nil, nil, 0
		clear(w.acked)
		clear(w.issued)
		return errCrash
	}
	train(t, cfg, w)

	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	ended := map[uint64]checkpoint.RecordRejection{}
	for _, r := range records {
		for _, x := range r.Rejected {
			if x.Reason == schemas.ReasonLost {
				require.NotNil(t, x.Created)
				require.True(t, x.Created.Equal(was))
				require.Zero(t, *x.Losses)
				ended[x.Sequence] = x
			}
		}
	}
	seen := []auditing.Seen{}
	for _, d := range carried {
		if d.Trajectory == nil {
			continue
		}
		require.Equal(t, d.Trajectory.ID, ended[d.Sequence].ID)
		seen = append(seen, auditing.Seen{ID: d.Trajectory.ID, Sequence: d.Sequence, Created: was, Life: 1, Oldest: d.Trajectory.OldestVersion()})
	}
	require.NotEmpty(t, seen)
	witness := &auditing.Witness{Seen: seen, Created: w.created, Gone: []auditing.Gone{{Created: was, Life: 1, From: 1 << 20}}}
	report := auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, witness)
	require.NoError(t, report.Err(), "%+v", report)
}
