package trainer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// lost are the ids of the samples that the record says to be lost, sorted.
func lost(records []checkpoint.Record) []string {
	var ids []string
	for _, r := range records {
		for _, x := range r.Rejected {
			if x.Reason == schemas.ReasonLost {
				ids = append(ids, x.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// Defects P6 and F4: a ticket that was ended without a trajectory left its group waiting for ever.
func TestSamplesOfWhichNothingIsLeftAreGivenUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var stolen []string
			prepare := func() (Config, *world) {
				cfg := testConfig(t.TempDir())
				cfg.Eta, cfg.Depth, cfg.Deterministic = int(seed%3), int(seed%3), seed%2 == 0
				w := newWorld(vocab)
				w.idle, stolen = true, nil
				w.steal = func(ticket *schemas.Ticket) bool {
					theft := ticket.Seed%3 == 0 && ticket.Attempt < 2
					if theft && !slices.Contains(stolen, ticket.ID) {
						stolen = append(stolen, ticket.ID)
					}
					return theft
				}
				return cfg, w
			}
			cfg, w := prepare()
			train(t, cfg, w)
			slices.Sort(stolen)
			records := audit(t, cfg, w)
			require.NotEmpty(t, stolen)
			require.Subset(t, stolen, lost(records))
			if cfg.Eta == 0 {
				require.Equal(t, stolen, lost(records))
			}
			require.Len(t, slices.Compact(lost(records)), len(lost(records)), "given up once")

			// Killed in between, it comes to an end all the same, and nothing is trained on twice.
			cfg, w = prepare()
			rng := rand.New(rand.NewPCG(seed, 1))
			w.crash = func(string) error {
				if rng.IntN(100) == 0 {
					return errCrash
				}
				return nil
			}
			train(t, cfg, w)
			require.Subset(t, stolen, lost(audit(t, cfg, w)))
		})
	}
}

func TestAPromptWhoseSamplesAreAlwaysLostIsGivenUp(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.MaxAttempts = 3
	w := newWorld(vocab)
	w.idle, w.steal = true, func(ticket *schemas.Ticket) bool { return ticket.Cursor == 1 }
	train(t, cfg, w)
	var ends []string
	for _, r := range audit(t, cfg, w) {
		for _, d := range r.Dropped {
			if d.Cursor == 1 {
				ends = append(ends, fmt.Sprint(d.Group, " ", d.Reason))
			}
		}
	}
	require.Equal(t, []string{"g000001-a0 lost", "g000001-a1 lost", "g000001-a2 given_up"}, ends)
}

// Defects P6 and F4, over JetStream: a thief with a producer's key takes tickets and acks them, and a producer of another wire
// version publishes what the trainer's feed refuses.
func TestOverJetStreamLostSamplesAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(ctx context.Context, conn *streams.Conn, run *streams.Run) error{
		"a thief": func(ctx context.Context, conn *streams.Conn, _ *streams.Run) error {
			js, err := jetstream.New(conn.NATS())
			if err != nil {
				return err
			}
			c, err := js.Consumer(ctx, "WEIR_test_TICKETS", "producers")
			if err != nil {
				return err
			}
			for taken := 0; taken < 70; {
				taking, err := c.Fetch(70 - taken)
				if err != nil {
					return err
				}
				for m := range taking.Messages() {
					taken++
					if err := m.DoubleAck(ctx); err != nil {
						return err
					}
				}
			}
			return nil
		},
		"a producer of another version": func(ctx context.Context, conn *streams.Conn, run *streams.Run) error {
			source, err := run.Tickets(ctx, streams.TicketOptions{Producer: "newer"})
			if err != nil {
				return err
			}
			defer source.Close()
			js, err := jetstream.New(conn.NATS())
			if err != nil {
				return err
			}
			w := newWorld(vocab)
			w.weights[0] = enginetest.NewBigram(vocab).Table
			for range 70 {
				lease, err := source.Take(ctx)
				if err != nil {
					return err
				}
				tr := w.sample(lease.Ticket, 0)
				tr.Producer = "newer"
				data, err := schemas.Marshal(tr)
				if err != nil {
					return err
				}
				data = bytes.Replace(data, append([]byte("\xa6schema"), schemas.Version), []byte("\xa6schema\x63"), 1)
				if _, err := js.Publish(ctx, "weir.test.trajectories.0.newer", data, jetstream.WithMsgID(tr.ID)); err != nil {
					return err
				}
				if err := lease.Done(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := streamtest.Conn(t)
			run := streamtest.Open(t, conn)
			cfg := testConfig(t.TempDir())
			cfg.Steps, cfg.BatchGroups = 3, 24
			producing, stop := context.WithCancel(t.Context())
			var group errgroup.Group
			group.Go(func() error {
				if err := harm(producing, conn, run); err != nil {
					return err
				}
				return produce(producing, run, "p", cfg.Eta)
			})
			trainOver(t, cfg, run)
			stop()
			require.ErrorIs(t, group.Wait(), context.Canceled)
			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Len(t, records, int(cfg.Steps)+1)
			require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
			incomplete := 0
			for _, r := range records {
				for _, d := range r.Dropped {
					if d.Reason == schemas.ReasonIncomplete {
						incomplete++
					}
				}
			}
			for rejected, err := range run.Rejected(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, schemas.ReasonVersion, rejected.Reason)
				require.True(t, strings.HasSuffix(rejected.Subject, ".newer"))
			}
			if name == "a thief" {
				require.NotEmpty(t, lost(records))
				return
			}
			require.Empty(t, lost(records), "what was refused says which sample it was of")
			require.Positive(t, incomplete)
		})
	}
}

// Defect F4: the trainer had no time limit for a group, so that a producer which keeps its leases alive and does nothing else
// held the run.
func TestLeasesThatNothingComesOfHaveATimeLimit(t *testing.T) {
	t.Parallel()
	run := func(change func(*Config), idles int) (records []checkpoint.Record, log string, err error) {
		cfg := testConfig(t.TempDir())
		cfg.Limits.Timeout = time.Minute
		change(&cfg)
		w := newWorld(vocab)
		w.idle, w.hoard = true, func(ticket *schemas.Ticket) bool { return ticket.Cursor%2 == 1 && ticket.Attempt == 0 }
		now := time.Unix(0, 0)
		var said bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.crash = func(at string) error {
			if at == "before next" {
				if idles--; idles == 0 {
					cancel()
				}
				now = now.Add(time.Second)
			}
			return nil
		}
		err = Run(ctx, cfg, Deps{
			Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: w, Prompts: prompts{vocab}, Now: func() time.Time { return now },
			Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		if err == nil {
			records = audit(t, cfg, w)
		}
		return records, said.String(), err
	}
	for name, change := range map[string]func(*Config){
		"in time":                    func(c *Config) { c.GroupTimeout = 4 * time.Minute },
		"three times limits.timeout": func(c *Config) { c.GroupTimeout = time.Second },
	} {
		records, said, err := run(change, 10000)
		require.NoError(t, err, name)
		require.NotEmpty(t, lost(records), name)
		for _, id := range lost(records) {
			cursor, attempt, ok := batch.ParseGroupID(id[:strings.LastIndex(id, "-")])
			require.True(t, ok && cursor%2 == 1 && attempt == 0, "%s: %s", name, id)
		}
		require.Contains(t, said, "nothing came for trainer.group_timeout", name)
	}
	for name, change := range map[string]func(*Config){
		"off":              func(c *Config) { c.GroupTimeout = 0 },
		"rollouts unbound": func(c *Config) { c.Limits.Timeout = 0 },
		"deterministic":    func(c *Config) { c.Deterministic = true },
		"not yet":          func(c *Config) { c.GroupTimeout = time.Hour },
	} {
		_, said, err := run(change, 1000)
		require.ErrorIs(t, err, context.Canceled, name)
		require.Contains(t, said, "nothing comes from producers", name)
		require.Less(t, strings.Count(said, "nothing comes from producers"), 8, name)
	}
}

// A trainer that starts while each ticket is leased waits trainer.group_timeout for the first trajectory too.
func TestATrainerThatStartsGivesLeasesTheirTime(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Limits.Timeout, cfg.GroupTimeout = time.Minute, time.Hour
	w := newWorld(vocab)
	w.idle, w.hoard = true, func(*schemas.Ticket) bool { return true }
	now, idles := time.Unix(0, 0), 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.crash = func(at string) error {
		if at == "before next" {
			if idles--; idles == 0 {
				cancel()
			}
			now = now.Add(time.Second)
		}
		return nil
	}
	var said bytes.Buffer
	err := Run(ctx, cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, said.String(), "samples are lost and given up")
	require.Contains(t, said.String(), "nothing comes from producers")
}
