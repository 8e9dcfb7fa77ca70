package trainer

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A trainer stops between two parts of a step, as one does whose machine is suspended. Another takes the run over from a
// copy of the folder and trains to the end; then the first goes on. It finds that out, and has changed nothing.
func TestASuspendedTrainerFindsItsRunTakenOver(t *testing.T) {
	t.Parallel()
	var want []float32
	if !t.Run("alone", func(t *testing.T) {
		run := streamtest.Open(t, streamtest.Conn(t))
		working(t, run)
		want = trainOver(t, takenOver(t), run)
	}) {
		return
	}
	for _, stage := range []string{"batch", "commit", "rename", "record", "ack", "purge", "publish", "control", "issue"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			conn := streamtest.Conn(t)
			run := streamtest.Open(t, conn)
			rest := working(t, run)
			cfg := takenOver(t)
			suspended, resumed, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			stream, err := OverStreams(run, weights.DefaultConfig())
			require.NoError(t, err)
			times := 0
			go func() {
				ended <- Run(t.Context(), cfg, Deps{
					Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}, Log: streamtest.Log(t),
					After: func(at string) {
						if at != stage {
							return
						}
						if times++; times == 3 {
							close(suspended)
							<-resumed
						}
					},
				})
			}()
			select {
			case <-suspended:
			case err := <-ended:
				t.Fatalf("it ended before it could be suspended: %v", err)
			}
			before, err := checkpoint.Steps(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			other := cfg
			other.Checkpoint.Dir = filepath.Join(t.TempDir(), "copy")
			require.NoError(t, os.CopyFS(other.Checkpoint.Dir, os.DirFS(cfg.Checkpoint.Dir)))
			require.Equal(t, want, trainOver(t, other, run), "none of its messages were taken away")
			rest() // the last ticket is done a moment after its trajectory is stored
			held, err := run.Counts(t.Context())
			require.NoError(t, err)
			close(resumed)
			require.ErrorIs(t, <-ended, streams.ErrFenced)

			after, err := checkpoint.Steps(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Equal(t, before[0], after[0], "it saves nothing any more")
			m, err := run.LatestManifest(t.Context())
			require.NoError(t, err)
			require.Equal(t, cfg.Steps, m.Version)
			c, err := run.Control(t.Context())
			require.NoError(t, err)
			require.Equal(t, cfg.Steps, c.PolicyVersion)
			now, err := run.Counts(t.Context())
			require.NoError(t, err)
			require.Equal(t, held, now)
			records, err := checkpoint.ReadRecords(other.Checkpoint.Dir)
			require.NoError(t, err)
			require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
		})
	}
}

func takenOver(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t.TempDir())
	cfg.Deterministic = true
	return cfg
}

// working rolls out tickets until rest is called, or the test ends.
func working(t *testing.T, run *streams.Run) (rest func()) {
	t.Helper()
	producing, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return produce(producing, run, "p", 0) })
	rest = func() {
		stop()
		require.ErrorIs(t, group.Wait(), context.Canceled)
	}
	t.Cleanup(rest)
	return rest
}

// A trainer whose checkpoint is older than what another has purged cannot go on, and does not disturb the other.
func TestATrainerThatFellBehindDoesNotTakeTheRun(t *testing.T) {
	t.Parallel()
	run := streamtest.Open(t, streamtest.Conn(t))
	working(t, run)
	cfg := takenOver(t)
	cfg.Steps = 2
	trainOver(t, cfg, run)
	behind := cfg
	behind.Checkpoint.Dir = filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(behind.Checkpoint.Dir, os.DirFS(cfg.Checkpoint.Dir)))
	cfg.Steps = 6
	trainOver(t, cfg, run)
	stream, err := OverStreams(run, weights.DefaultConfig())
	require.NoError(t, err)
	err = Run(t.Context(), behind, Deps{Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}})
	require.ErrorIs(t, err, streams.ErrPurged)
	cfg.Steps = 7
	trainOver(t, cfg, run)
}
