package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/safetensors"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// produce rolls out tickets over a real run until ctx ends.
func produce(ctx context.Context, run *streams.Run, name string, eta int) error {
	return produceIn(ctx, newWorld(vocab), run, name, eta)
}

// produceTurns is produce with rollouts of several turns, which tickets may fork.
func produceTurns(ctx context.Context, run *streams.Run, name string, eta int) error {
	w := newWorld(vocab)
	w.turns = true
	return produceIn(ctx, w, run, name, eta)
}

func produceIn(ctx context.Context, w *world, run *streams.Run, name string, eta int) error {
	source, err := run.Tickets(ctx, streams.TicketOptions{Producer: name, MaxLeases: 4})
	if err != nil {
		return err
	}
	defer source.Close()
	for {
		lease, err := source.Take(ctx)
		if err != nil {
			return err
		}
		if t := lease.Ticket; t.MinVersion != max(0, t.PolicyVersion-int64(eta)) {
			return fmt.Errorf("ticket %s of version %d asks for version %d", t.ID, t.PolicyVersion, t.MinVersion)
		}
		m, err := run.LatestManifest(ctx)
		if err != nil {
			return err
		}
		if w.weights[m.Version] == nil {
			data, err := streamtest.Shard(ctx, run, m.Shards[0])
			if err != nil {
				return err
			}
			decoded, err := safetensors.Decode(data)
			if err != nil {
				return err
			}
			w.weights[m.Version] = decoded.Tensors[0].Data
		}
		tr := w.sample(lease.Ticket, m.Version)
		tr.Producer = name
		if lease.Ticket.Seed%16 == 0 {
			closed := &schemas.GroupClosed{Run: tr.Run, Group: tr.Group, Cancelled: []int{tr.Sample}, Why: "test", Producer: name}
			err = run.CloseGroup(ctx, closed)
		} else {
			err = run.Publish(ctx, tr)
		}
		if err != nil {
			return err
		}
		if err := lease.Done(ctx); err != nil {
			return err
		}
	}
}

// runOver runs a trainer over a real run once, and returns the weights that it ended with.
func runOver(ctx context.Context, t *testing.T, cfg Config, run *streams.Run, observe func(schemas.Event)) ([]float32, error) {
	t.Helper()
	e := enginetest.NewBigram(vocab)
	stream, err := OverStreams(run, weights.DefaultConfig())
	require.NoError(t, err)
	err = Run(ctx, cfg, Deps{
		Engine: e, Stream: stream, Prompts: prompts{vocab}, Log: streamtest.Log(t),
		NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
		Observer:  observe,
	})
	return e.Table, err
}

// trainOver runs a trainer over a real run, stopped at the given steps and started again, and returns the weights.
func trainOver(t *testing.T, cfg Config, run *streams.Run, stops ...int64) []float32 {
	t.Helper()
	for {
		ctx, stop := context.WithCancel(t.Context())
		table, err := runOver(ctx, t, cfg, run, func(ev schemas.Event) {
			if len(stops) > 0 && ev.Type == schemas.EventStepDone && ev.Step == stops[0] {
				stops = stops[1:]
				stop()
			}
		})
		stop()
		if errors.Is(err, context.Canceled) {
			continue
		}
		require.NoError(t, err)
		return table
	}
}

func TestOverJetStream(t *testing.T) {
	t.Parallel()
	for name, eta := range map[string]int{"eta 0": 0, "eta 2": 2, "eta 0, a critic of its own": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results := [][]float32{}
			for _, stops := range [][]int64{nil, {1, 3, 4}} {
				run := streamtest.Open(t, streamtest.Conn(t))
				cfg := testConfig(t.TempDir())
				cfg.Eta, cfg.Depth, cfg.Deterministic = eta, -1, eta == 0
				if strings.HasSuffix(name, "critic of its own") {
					critical(&cfg, learner.CriticOwn) // the versions of its warm-up have the same weights, and so the same shards
				}
				producing, stop := context.WithCancel(t.Context())
				var group errgroup.Group
				for p := range 2 {
					group.Go(func() error { return produce(producing, run, fmt.Sprint("p", p), eta) })
				}
				results = append(results, trainOver(t, cfg, run, stops...))
				stop()
				require.ErrorIs(t, group.Wait(), context.Canceled)

				records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
				require.NoError(t, err)
				require.Len(t, records, int(cfg.Steps)+1)
				require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
				m, err := run.LatestManifest(t.Context())
				require.NoError(t, err)
				require.Equal(t, cfg.Steps, m.Version)
				c, err := run.Control(t.Context())
				require.NoError(t, err)
				require.Equal(t, cfg.Steps, c.PolicyVersion)
				require.Equal(t, cfg.Steps-int64(eta), c.MinVersion)
			}
			if eta == 0 {
				require.Equal(t, results[0], results[1], "stopped and started again, bit for bit the same")
			}
		})
	}
}

// Defect P20: it changed the broker after a run that had ended, which leaves no group open.
func TestANewBrokerWithoutTheOldStreamIsGoneOnWith(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth = 2, -1
	var open []string
	for _, last := range []bool{false, true} {
		run := streamtest.Open(t, streamtest.Conn(t))
		producing, stop := context.WithCancel(t.Context())
		var group errgroup.Group
		group.Go(func() error { return produce(producing, run, "p", cfg.Eta) })
		ctx, end := context.WithCancel(t.Context())
		_, err := runOver(ctx, t, cfg, run, func(ev schemas.Event) {
			if !last && ev.Type == schemas.EventStepDone && ev.Step == 3 {
				end()
			}
		})
		end()
		stop()
		require.ErrorIs(t, group.Wait(), context.Canceled)
		if last {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		require.Len(t, records, 4)
		open = records[3].Open
		require.NotEmpty(t, open)
	}
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, 7)
	require.NotEqual(t, records[3].Created, records[4].Created)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
	var lost []string
	issued := slices.Clone(records[6].Open)
	for _, r := range records {
		for _, g := range r.Groups {
			require.False(t, r.Step > 3 && slices.Contains(open, g.Group), "%s went with its stream", g.Group)
			issued = append(issued, g.Group)
		}
		for _, d := range r.Dropped {
			issued = append(issued, d.Group)
			if d.Reason == schemas.ReasonLost {
				require.True(t, d.Reissue)
				lost = append(lost, d.Group)
			}
		}
	}
	require.ElementsMatch(t, open, lost)
	for _, id := range lost {
		cursor, attempt, ok := batch.ParseGroupID(id)
		require.True(t, ok)
		require.Contains(t, issued, batch.GroupID(cursor, attempt+1), "its prompt is issued again")
	}
}

// What fills the stream may be nothing that the trainer ever sees, or little that is large: it makes room none the less.
func TestAStreamFullOfJunkIsRelieved(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 4<<20, 64<<20
	run, err := conn.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	cfg := testConfig(t.TempDir())
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	for _, size := range []int{100 << 10, 1 << 10, 1} {
		for err = nil; err == nil; {
			_, err = js.Publish(t.Context(), "weir.test.trajectories.0.junk", make([]byte, size), jetstream.WithRetryAttempts(0))
		}
		require.ErrorContains(t, err, "maximum bytes exceeded")
	}
	producing, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return produce(producing, run, "p", cfg.Eta) })
	trainOver(t, cfg, run)
	stop()
	require.ErrorIs(t, group.Wait(), context.Canceled)
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, int(cfg.Steps)+1)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
}

// Defect P7: what waits for its group stays pending, and the broker sends no more than so much of that.
func TestMessagesOfOpenAndFutureGroupsDoNotStopTheFeed(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]func(i int, tr *schemas.Trajectory) (any, string){
		"markers of one group": func(int, *schemas.Trajectory) (any, string) {
			return &schemas.GroupClosed{Run: "test", Group: batch.GroupID(0, 0), Cancelled: []int{}, Producer: "evil"}, "none"
		},
		"trajectories of groups to come": func(i int, tr *schemas.Trajectory) (any, string) {
			tr.Cursor, tr.Attempt, tr.Sample, tr.GroupSize = uint64(3+i%20), i/20, 0, 4
			tr.Group, tr.ID = batch.GroupID(tr.Cursor, tr.Attempt), batch.TicketID(tr.Cursor, tr.Attempt, 0)
			return tr, "0"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := streamtest.Conn(t)
			run := streamtest.Open(t, conn)
			cfg := testConfig(t.TempDir())
			w := newWorld(vocab)
			w.weights[0] = enginetest.NewBigram(vocab).Table
			for i := range cfg.maxPending(cfg.Eta) + 50 {
				tr := w.sample(&schemas.Ticket{Run: "test", Task: "count", GroupSize: 4, Prompt: schemas.Prompt{ID: "p"}, Sampling: schemas.Sampling{Temperature: 1}}, 0)
				tr.Producer = "evil"
				m, version := message(i, tr)
				data, err := schemas.Marshal(m)
				require.NoError(t, err)
				require.NoError(t, conn.NATS().Publish("weir.test.trajectories."+version+".evil", data))
			}
			producing, stop := context.WithCancel(t.Context())
			var group errgroup.Group
			group.Go(func() error { return produce(producing, run, "p", cfg.Eta) })
			trainOver(t, cfg, run)
			stop()
			require.ErrorIs(t, group.Wait(), context.Canceled)
			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
		})
	}
}
