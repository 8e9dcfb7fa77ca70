package trainer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// tight is a run whose streams have room for so many tickets and hardly a trajectory more.
func tight(t *testing.T, conn *streams.Conn, tickets int) *streams.Run {
	t.Helper()
	topology := streams.DefaultTopology()
	topology.MaxTrajectories, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.MaxTickets = 100, 4096, 8<<20, tickets
	run, err := conn.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	return run
}

// Defect P5: the trainer waited for room among the tickets and read nothing, the producers for room among the trajectories.
func TestFullTicketsAndFullTrajectoriesDoNotHoldEachOther(t *testing.T) {
	t.Parallel()
	run := tight(t, streamtest.Conn(t), 4)
	working(t, run)
	cfg := testConfig(t.TempDir())
	cfg.Steps = 2
	trainOver(t, cfg, run)
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, int(cfg.Steps)+1)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
}

// Defect P5: a drain stops the producers, so that no ticket is ever done and the trainer waited for one for ever.
func TestADrainEndsTheRunWhileTicketsAreFull(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	run := tight(t, conn, 3)
	cfg := testConfig(t.TempDir())
	stream, err := OverStreams(run, weights.DefaultConfig())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}, Log: streamtest.Log(t)})
	}()
	require.Eventually(t, func() bool {
		n, err := run.OutstandingTickets(t.Context())
		return err == nil && n == 3
	}, time.Minute, 5*time.Millisecond)
	operator, err := conn.Attach(t.Context(), "test")
	require.NoError(t, err)
	require.NoError(t, operator.UpdateControl(t.Context(), func(c *schemas.Control) *schemas.Control {
		c.Draining = true
		return c
	}))
	require.NoError(t, <-ended)
}
