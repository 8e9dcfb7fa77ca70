package trainer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Defect P2: the broker comes back with an older copy of its store, under a trainer that lives or between two that do. What
// was trained on stays trained on, once, and what was lost is rolled out again.
func TestATrainerGoesOnWhereItsStreamLostMessages(t *testing.T) {
	t.Parallel()
	for _, lives := range []bool{true, false} {
		name := "the trainer is started again"
		if lives {
			name = "the trainer lives"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := streamtest.Config(t)
			config.Listen = streamtest.FreeAddress(t)
			start := func() *broker.Broker {
				b, err := broker.Start(t.Context(), config, streamtest.Log(t))
				require.NoError(t, err)
				return b
			}
			broker, kept := start(), filepath.Join(t.TempDir(), "kept")
			defer func() { broker.Shutdown() }()
			conn := streamtest.Connect(t, streams.ConnectConfig{URL: "nats://" + config.Listen})
			run := streamtest.Open(t, conn)
			cfg := testConfig(t.TempDir())
			cfg.Steps = 9
			producing, stop := context.WithCancel(t.Context())
			var group errgroup.Group
			group.Go(func() error { return produce(producing, run, "p", cfg.Eta) })
			for ended := false; !ended; {
				ctx, end := context.WithCancel(t.Context())
				stream, err := OverStreams(run, weights.DefaultConfig())
				require.NoError(t, err)
				err = Run(ctx, cfg, Deps{
					Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}, Log: streamtest.Log(t),
					NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
					Observer: func(ev schemas.Event) {
						if ev.Type != schemas.EventStepDone {
							return
						}
						switch {
						case ev.Step == 2:
							broker.Shutdown()
							require.NoError(t, os.CopyFS(kept, os.DirFS(config.StoreDir)))
							broker = start()
						case ev.Step == 5 && config.StoreDir != kept:
							broker.Shutdown()
							config.StoreDir = kept
							broker = start()
							if !lives {
								end()
							}
						}
					},
				})
				end()
				ended = !errors.Is(err, context.Canceled)
				if ended {
					require.NoError(t, err)
				}
			}
			stop()
			require.ErrorIs(t, group.Wait(), context.Canceled)
			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Len(t, records, int(cfg.Steps)+1)
			require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
			require.Equal(t, int64(1), records[cfg.Steps].Losses)
			reissued := 0
			for _, r := range records {
				for _, d := range r.Dropped {
					if d.Reason == schemas.ReasonLost && d.Reissue {
						reissued++
					}
				}
			}
			require.Positive(t, reissued, "the open groups were issued again")
		})
	}
}

// Defect P2: a message settled above the ledger's mark, or carried, must be in the stream too, and not the mark alone.
func TestThePositionKnowsWhatWasSettledAboveIt(t *testing.T) {
	ledger := batch.Ledger{Low: 5, Above: []uint64{8, 11}, Carried: []uint64{2, 9}}
	p, known := streamPosition(&checkpoint.State{Stream: "S", Ledger: ledger})
	require.Equal(t, &streams.Position{Stream: "S", Sequence: 5}, p)
	require.Equal(t, streams.Mark{Sequence: 11}, known)
	for _, c := range []struct {
		state checkpoint.State
		want  uint64
	}{
		{checkpoint.State{Stream: "S", Ledger: batch.Ledger{Low: 5, Above: ledger.Above, Carried: []uint64{2, 14}}}, 14},
		{checkpoint.State{Stream: "S", Ledger: batch.Ledger{Low: 5}}, 5},
		{checkpoint.State{Stream: "S", Ledger: ledger, Known: 20}, 20},
	} {
		_, known := streamPosition(&c.state)
		require.Equal(t, c.want, known.Sequence)
	}
	p, _ = streamPosition(&checkpoint.State{})
	require.Nil(t, p)
}
