package trainer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"

	"github.com/weir-rl/weir/streams/streamtest"
)

// The client library leaves this goroutine behind when a connection closes before it begins to listen.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, streamtest.ClientLeak())
}

const vocab = 6

func testConfig(dir string) Config {
	c := DefaultConfig()
	c.Steps, c.BatchGroups, c.GroupSize, c.MinGroup = 6, 3, 4, 2
	c.Eta, c.Depth = 0, 0
	c.Minibatches, c.MicroTokens, c.MaxDroppedGroups = 2, 40, 0
	c.Optimizer.LearningRate, c.Optimizer.ClipNorm = 0.5, 0
	c.Checkpoint = checkpoint.Config{Dir: dir, Keep: 2, Messages: 1 << 20, Batches: -1}
	return c
}

// train runs to the end, starting again whenever the trainer was killed, and returns the final weights.
func train(t *testing.T, cfg Config, w *world) []float32 {
	t.Helper()
	for range 1000 {
		e := newBigram(w.vocab)
		err := Run(t.Context(), cfg, Deps{Engine: e, Stream: w, Prompts: prompts{w.vocab}, Folder: folder{w.crash}})
		if errors.Is(err, errCrash) {
			continue
		}
		require.NoError(t, err)
		return e.table
	}
	t.Fatal("the run never ends")
	return nil
}

// audit checks the record against what the producers sent.
func audit(t *testing.T, cfg Config, w *world) []checkpoint.Record {
	t.Helper()
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, int(cfg.Steps)+1)
	used := map[string]int64{}
	for i, r := range records {
		require.EqualValues(t, i, r.Step)
		for _, x := range r.Rejected {
			if x.Reason.Refusal() {
				require.Contains(t, w.rejected, x.Sequence, "%s: %s is not among the rejected", x.Reason, x.ID)
			}
		}
		if i == 0 {
			continue
		}
		require.NotEmpty(t, r.Groups)
		again, err := checkpoint.ReadBatch(cfg.Checkpoint.Dir, &r)
		require.NoError(t, err)
		for _, d := range again {
			require.Equal(t, w.messages[d.Sequence-1].Trajectory.Segments, d.Trajectory.Segments, "the batch as it was")
		}
		if cfg.MaxDroppedGroups == 0 {
			require.Len(t, r.Groups, cfg.BatchGroups)
		}
		for _, g := range r.Groups {
			require.GreaterOrEqual(t, len(g.Members), cfg.MinGroup)
			require.Equal(t, cfg.Advantage.Name == "remax", g.Baseline != nil)
			for i, m := range g.Used() {
				require.NotContains(t, used, m.ID, "used twice")
				used[m.ID] = r.Step
				require.Equal(t, i == len(g.Members), w.messages[m.Sequence-1].Trajectory.Greedy(), "of all, the baseline alone is greedy")
				require.LessOrEqual(t, r.Step-1-m.Oldest, int64(cfg.Eta), "over-stale")
				require.Equal(t, m.ID, w.messages[m.Sequence-1].Trajectory.ID)
			}
		}
	}
	report := auditing.Check(records, cfg.Eta, nil)
	require.NoError(t, report.Err(), "%+v", report)
	return records
}

func TestInvariantKilledAnywhereItTrainsOnTheSameBatches(t *testing.T) {
	t.Parallel()
	calls := []string{"issue", "publish", "control", "ack", "reject", "purge", "next"}
	var points []string
	for _, c := range calls {
		points = append(points, "before "+c, "after "+c)
	}
	points = append(points, "within save")
	for _, setting := range []struct {
		name string
		eta  int
		det  bool
		// change chooses what carries state from step to step, or draws lots, or needs more of a group.
		change func(*Config)
	}{
		{"synchronous", 0, true, func(*Config) {}},
		{"asynchronous", 2, false, func(*Config) {}},
		{"with a baseline", 2, false, func(c *Config) { c.Advantage.Name = "remax" }},
		{"with running means", 2, false, func(c *Config) { c.Advantage.Name = "rae" }},
		{"with samples passed over", 2, false, func(c *Config) {
			c.Selection.Resample.By, c.Selection.Resample.Take, c.Selection.DropRate = selection.ResampleCorrect, 3, 0.5
		}},
	} {
		prepare := func(dir string) (Config, *world) {
			cfg := testConfig(dir)
			setting.change(&cfg)
			cfg.Eta, cfg.Depth, cfg.Deterministic = setting.eta, setting.eta, setting.det
			w := newWorld(vocab)
			w.noise, w.lag = true, int64(setting.eta)
			return cfg, w
		}
		cfg, left := prepare(t.TempDir())
		want := train(t, cfg, left)
		wantRecords := audit(t, cfg, left)

		for _, point := range points {
			for _, nth := range []int{1, 2, 5, 17} {
				t.Run(fmt.Sprintf("%s/%s/%d", setting.name, point, nth), func(t *testing.T) {
					t.Parallel()
					cfg, w := prepare(t.TempDir())
					seen := 0
					w.crash = func(at string) error {
						if at != point {
							return nil
						}
						if seen++; seen == nth {
							return errCrash
						}
						return nil
					}
					require.Equal(t, want, train(t, cfg, w))
					records := audit(t, cfg, w)
					for i, r := range records {
						require.Equal(t, ids(wantRecords[i]), ids(r), "step %d", i)
					}
				})
			}
		}
	}
}

func TestKilledAtRandomAgainAndAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			prepare := func() (Config, *world) {
				cfg := testConfig(t.TempDir())
				cfg.Eta, cfg.Depth, cfg.MaxConcurrentGroups = int(seed%4), int(seed%4), int(seed%3)*2
				cfg.Checkpoint.Messages, cfg.MaxDroppedGroups = 10*int(1+seed%5), int(seed%2)*4
				cfg.Advantage.Name = []string{"grpo", "remax", "rae"}[seed%3]
				cfg.Selection.Resample.By = []string{selection.ResampleOff, selection.ResampleCorrect}[seed%5/4]
				cfg.Selection.Resample.Take = 2
				w := newWorld(vocab)
				w.noise, w.lag = true, min(int64(seed%5), int64(cfg.Eta)+1)
				if cfg.Eta == 0 && seed%8 == 0 {
					cfg.Deterministic, cfg.MaxDroppedGroups = true, int(seed%3)*2
					w.shuffle = rand.New(rand.NewPCG(seed, 9))
				}
				return cfg, w
			}
			cfg, w := prepare()
			want := train(t, cfg, w)
			wantRecords := audit(t, cfg, w)
			cfg, w = prepare()
			rng := rand.New(rand.NewPCG(seed, 1))
			w.crash = func(string) error {
				if rng.IntN(150) == 0 {
					return errCrash
				}
				return nil
			}
			require.Equal(t, want, train(t, cfg, w))
			for i, r := range audit(t, cfg, w) {
				require.Equal(t, ids(wantRecords[i]), ids(r))
			}
		})
	}
}

func ids(r checkpoint.Record) []string {
	var out []string
	for _, g := range r.Groups {
		for _, m := range g.Used() {
			out = append(out, m.ID)
		}
	}
	return out
}

func TestEtaZeroDoesNotDependOnTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	var want []float32
	for seed := range uint64(4) {
		cfg := testConfig(t.TempDir())
		cfg.Deterministic = true
		w := newWorld(vocab)
		w.noise = true
		w.shuffle = rand.New(rand.NewPCG(seed, 2))
		got := train(t, cfg, w)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
}

func TestEtaZeroGivesTheUpdatesOfAPlainLoop(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"grpo", "remax", "rae"} {
		for _, size := range []int{4, 1} {
			cfg := testConfig(t.TempDir())
			cfg.Deterministic, cfg.MicroTokens = true, 1<<20
			cfg.Advantage.Name, cfg.GroupSize, cfg.MinGroup = name, size, min(size, 2)
			require.Equal(t, plainLoop(t, cfg), train(t, cfg, newWorld(vocab)), "%s, groups of %d", name, size)
		}
	}
}

// plainLoop trains without streams, assembly, packing or checkpoints.
func plainLoop(t *testing.T, cfg Config) []float32 {
	ctx := t.Context()
	w, e := newWorld(vocab), newBigram(vocab)
	estimator, err := advantage.New(cfg.Advantage.Name, cfg.Advantage.Options)
	require.NoError(t, err)
	policy, err := loss.NewObjective(cfg.Loss)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(cfg.Seed, 0))
	cursor := uint64(0)
	for step := range cfg.Steps {
		w.weights[step] = slices.Clone(e.table)
		b := &batch.Batch{}
		var greedy []float64 // a group
		for len(b.Groups) < cfg.BatchGroups {
			group, rewards := batch.Taken{}, map[float64]bool{}
			roll := func(s int, temperature float32) *schemas.Trajectory {
				return w.sample(&schemas.Ticket{
					Cursor: cursor, Sample: s, Seed: ticketSeed(cfg.Seed, cursor, 0, s), Sampling: schemas.Sampling{Temperature: temperature},
				}, step)
			}
			for s := range cfg.GroupSize {
				tr := roll(s, 1)
				group.Members = append(group.Members, batch.Member{Trajectory: tr, Reward: tr.Reward})
				rewards[tr.Reward] = true
			}
			greedy = append(greedy, roll(cfg.GroupSize, 0).Reward)
			cursor++
			if len(rewards) > 1 || cfg.GroupSize == 1 {
				b.Groups = append(b.Groups, group)
			} else {
				greedy = greedy[:len(greedy)-1]
			}
		}
		rows := batch.NewRows(b)
		adv := &advantage.Result{}
		require.NoError(t, estimator.Estimate(&advantage.Batch{
			Offsets: rows.Offsets, Mask: rows.Mask, Rewards: rows.Rewards, Group: rows.Group, Trajectory: rows.Trajectory,
			Baselines: batch.Pick(rows.Group, greedy),
		}, adv))
		out, err := e.Forward(ctx, rows.GPU(rows.All()), false)
		require.NoError(t, err)
		old := widen(out.Logprobs)
		for _, of := range rows.Minibatches(cfg.Minibatches, random) {
			in := rows.GPU(of)
			out, err := e.Forward(ctx, in, true)
			require.NoError(t, err)
			var result loss.Result
			require.NoError(t, policy.Loss(&loss.Batch{
				Offsets: in.Offsets, Mask: in.Mask, Logprobs: widen(out.Logprobs),
				Proximal: batch.Gather(rows, of, old), Behaviour: batch.Gather(rows, of, rows.Behaviour),
				Advantages: batch.Gather(rows, of, adv.Advantages),
			}, &result))
			g := gradients(&result)
			require.NoError(t, e.Backward(ctx, g))
			_, err = e.Step(ctx, cfg.Optimizer.options(step, cfg.Steps))
			require.NoError(t, err)
		}
	}
	return e.table
}

func TestAStepThatDropsMoreThanTheStreamHoldsGoesOn(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 5} {
		prepare := func() (Config, *world) {
			cfg := testConfig(t.TempDir())
			cfg.Eta, cfg.Depth, cfg.MaxDroppedGroups, cfg.Checkpoint.Messages = 1, 1, limit, 20
			w := newWorld(vocab)
			w.noise, w.flat, w.room = true, 17, 90
			return cfg, w
		}
		cfg, w := prepare()
		want := train(t, cfg, w)
		audit(t, cfg, w)
		require.Greater(t, len(w.messages), 4*w.room)

		cfg, w = prepare()
		rng := rand.New(rand.NewPCG(uint64(limit), 5))
		w.crash = func(string) error {
			if rng.IntN(300) == 0 {
				return errCrash
			}
			return nil
		}
		require.Equal(t, want, train(t, cfg, w))
		audit(t, cfg, w)
	}
}

func TestItLearns(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Eta, cfg.Depth = 60, 2, -1
	w := newWorld(vocab)
	var rewards []float64
	e := newBigram(vocab)
	err := Run(t.Context(), cfg, Deps{Engine: e, Stream: w, Prompts: prompts{vocab}, Folder: folder{}, Observer: func(ev schemas.Event) {
		if ev.Type == schemas.EventStepDone {
			rewards = append(rewards, ev.Metrics["reward/mean"])
		}
	}})
	require.NoError(t, err)
	require.Len(t, rewards, 60)
	require.Greater(t, mean10(rewards[50:]), 2*mean10(rewards[:10]))
	_, err = os.Stat(checkpoint.StepDir(cfg.Checkpoint.Dir, 60))
	require.NoError(t, err)
}

func mean10(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s / float64(len(x))
}
