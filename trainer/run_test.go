package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
)

// The client library leaves this goroutine behind when a connection closes before it begins to listen.
func TestMain(m *testing.M) {
	if dir := os.Getenv(watchedIn); dir != "" {
		if err := trainWatched(dir); err != nil {
			panic(err)
		}
		return
	}
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
	c.Archive.Bytes = 0
	return c
}

// train runs to the end, starting again whenever the trainer was killed, and returns the final weights, the critic's
// after the policy's.
func train(t *testing.T, cfg Config, w *world) []float32 {
	t.Helper()
	for range 1000 {
		e, own := enginetest.BigramOf(gpu.Config{VocabSize: w.vocab, ValueHead: cfg.Critic.Network == learner.CriticHead}), &enginetest.Bigram{}
		err := Run(t.Context(), cfg, Deps{
			Engine: dying{e, w.crash}, Stream: w, Prompts: prompts{w.vocab},
			NewEngine: func(c gpu.Config) (gpu.Engine, error) {
				own = enginetest.BigramOf(c)
				return own, nil
			},
		})
		if errors.Is(err, errCrash) {
			continue
		}
		require.NoError(t, err)
		return slices.Concat(e.Table, e.Values, own.Table, own.Values)
	}
	t.Fatal("the run never ends")
	return nil
}

// critical makes an advantage by a critic that warms up.
func critical(c *Config, network string) {
	c.Advantage.Name, c.Critic.Network, c.Critic.WarmupSteps = "gae", network, 2
	c.Critic.Optimizer.LearningRate, c.Critic.Optimizer.ClipNorm = 0.3, 0
}

// audit checks the record against what the producers sent.
func audit(t *testing.T, cfg Config, w *world) []checkpoint.Record {
	t.Helper()
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, int(cfg.Steps)+1)
	used := map[string][]int64{}
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
		if cfg.MaxDroppedGroups == 0 && cfg.Selection.Accumulate.Rows == 0 && r.Use <= 1 {
			require.Len(t, r.Groups, cfg.BatchGroups)
		}
		for _, g := range r.Groups {
			require.GreaterOrEqual(t, len(g.Members), cfg.MinGroup)
			require.Equal(t, cfg.Advantage.Name == "remax", g.Baseline != nil)
			for i, m := range g.Used() {
				require.Len(t, used[m.ID], max(1, r.Use)-1, "uses")
				require.LessOrEqual(t, r.Use, cfg.Reuse)
				used[m.ID] = append(used[m.ID], r.Step)
				require.Equal(t, i == len(g.Members), w.messages[m.Sequence-1].Trajectory.Greedy(), "of all, the baseline alone is greedy")
				require.LessOrEqual(t, r.Step-1-m.Oldest, int64(cfg.Eta), "over-stale")
				require.Equal(t, m.ID, w.messages[m.Sequence-1].Trajectory.ID)
			}
		}
	}
	report := auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil)
	require.NoError(t, report.Err(), "%+v", report)
	return records
}

// Defect P20: killed at a call that a run has so seldom that it was not killed at all.
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
		{"with a value head", 0, true, func(c *Config) { critical(c, learner.CriticHead) }},
		{"with a critic of its own", 2, false, func(c *Config) { critical(c, learner.CriticOwn) }},
		{"with samples passed over", 2, false, func(c *Config) {
			c.Selection.Resample.By, c.Selection.Resample.Take, c.Selection.DropRate = selection.ResampleCorrect, 3, 0.5
		}},
		{"with branches", 0, true, func(c *Config) { c.GroupSize, c.Branch.Trunks, c.Branch.Threshold = 5, 2, 0.2 }},
		{"with batches used thrice", 3, false, func(c *Config) { c.Reuse = 3 }},
		{"with rows gathered", 1, true, func(c *Config) {
			c.Selection.Accumulate.Rows, c.Selection.Accumulate.MaxRounds, c.Selection.DropRate = 30, 9, 0.5
		}},
	} {
		prepare := func(dir string) (Config, *world) {
			cfg := testConfig(dir)
			setting.change(&cfg)
			cfg.Eta, cfg.Depth, cfg.Deterministic = setting.eta, setting.eta, setting.det
			w := newWorld(vocab)
			w.noise, w.lag, w.turns = true, int64(setting.eta), cfg.Branch.Trunks > 0
			return cfg, w
		}
		cfg, left := prepare(t.TempDir())
		met := map[string]int{}
		left.crash = func(at string) error {
			met[at]++
			return nil
		}
		want := train(t, cfg, left)
		wantRecords := audit(t, cfg, left)

		for _, point := range points {
			times := met[point]
			require.Positive(t, times, "%s: %s is never met", setting.name, point)
			for _, nth := range slices.Compact([]int{1, min(2, times), max(min(2, times), times/2), times}) {
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
					require.GreaterOrEqual(t, seen, nth, "it was killed")
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
				cfg.Advantage.Name = []string{"grpo", "remax", "rae", "gae"}[seed/4%4]
				if cfg.Advantage.Name == "gae" {
					critical(&cfg, []string{learner.CriticHead, learner.CriticOwn}[seed/2%2])
				}
				cfg.Selection.Resample.By = []string{selection.ResampleOff, selection.ResampleCorrect}[seed%5/4]
				cfg.Selection.Resample.Take = 2
				cfg.Selection.Accumulate = selection.Accumulate{Rows: int(seed%7/5) * 20, MaxRounds: 20}
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
	for _, change := range []func(*Config){
		func(c *Config) { c.Advantage.Name = "grpo" },
		func(c *Config) { c.Advantage.Name = "remax" },
		func(c *Config) { c.Advantage.Name = "rae" },
		func(c *Config) { critical(c, learner.CriticHead) },
		func(c *Config) { critical(c, learner.CriticOwn) },
	} {
		for _, size := range []int{4, 1} {
			cfg := testConfig(t.TempDir())
			cfg.Deterministic, cfg.MicroTokens = true, 1<<20
			cfg.GroupSize, cfg.MinGroup = size, min(size, 2)
			change(&cfg)
			cfg.Advantage.Own = advantage.Keys(cfg.Advantage.Name)
			perturb.Overlay(cfg.Advantage.Own, advantage.Alone{Single: advantage.SingleReward}, false) // else a group of one is refused
			require.Equal(t, plainLoop(t, cfg), train(t, cfg, newWorld(vocab)), "%s, critic %s, groups of %d", cfg.Advantage.Name, cfg.Critic.Network, size)
		}
	}
}

// plainLoop trains without streams, assembly, packing or checkpoints.
func plainLoop(t *testing.T, cfg Config) []float32 {
	ctx := t.Context()
	w, e := newWorld(vocab), enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: cfg.Critic.Network == learner.CriticHead})
	critic := e
	if cfg.Critic.Network == learner.CriticOwn {
		critic = enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: true})
	}
	estimator, err := cfg.Advantage.New()
	require.NoError(t, err)
	policy, err := loss.NewObjective(cfg.Loss)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(cfg.Seed, 0))
	cursor := uint64(0)
	for step := range cfg.Steps {
		w.weights[step] = slices.Clone(e.Table)
		b := &batch.Batch{}
		var greedy []float64 // a group
		for len(b.Groups) < cfg.BatchGroups {
			group, rewards := batch.Taken{}, map[float64]bool{}
			roll := func(s int, temperature float32) *schemas.Trajectory {
				return w.sample(&schemas.Ticket{
					Cursor: cursor, Sample: s, Seed: batch.Seed(cfg.Seed, cursor, 0, s), Sampling: schemas.Sampling{Temperature: temperature},
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
		forward := func(e *enginetest.Bigram, of []int) *gpu.Outputs {
			var out *gpu.Outputs
			require.NoError(t, e.Evaluate(ctx, []*gpu.Batch{rows.GPU(of)}, func(_ int, o *gpu.Outputs) error {
				out = o // a Bigram's stay valid
				return nil
			}))
			return out
		}
		old, values := widen(forward(e, rows.All()).Logprobs), widen(forward(critic, rows.All()).Values)
		adv := &advantage.Result{}
		require.NoError(t, estimator.Estimate(&advantage.Batch{
			Offsets: rows.Offsets, Mask: rows.Mask, Rewards: rows.Rewards, Group: rows.Group, Trajectory: rows.Trajectory,
			Baselines: batch.Pick(rows.Group, greedy), Values: values,
		}, adv))
		for _, of := range rows.Minibatches(cfg.Minibatches, random) {
			in := &loss.Batch{
				Offsets: rows.PackedOffsets(of), Mask: batch.Gather(rows, of, rows.Mask),
				Proximal: batch.Gather(rows, of, old), Behaviour: batch.Gather(rows, of, rows.Behaviour),
				Advantages: batch.Gather(rows, of, adv.Advantages), Returns: batch.Gather(rows, of, adv.Returns),
				OldValues: batch.Gather(rows, of, values),
			}
			take := func(e *enginetest.Bigram, result *loss.Result, o gpu.StepOptions) {
				require.NoError(t, e.Accumulate(ctx, []*gpu.Batch{rows.GPU(of)}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
					return gradients(result), nil
				}))
				_, err := e.Step(ctx, o)
				require.NoError(t, err)
			}
			warming, rate := step < cfg.Critic.WarmupSteps, cfg.Critic.Optimizer.LearningRate
			var result loss.Result
			if warming || critic != e {
				in.Values = widen(forward(critic, of).Values)
				require.NoError(t, policy.ValueLoss(in, &result))
				in.Values = nil
				o := constantRate(cfg.Critic.Optimizer)
				if critic == e {
					o.LearningRate, o.ValueLearningRate = 0, rate
				}
				take(critic, &result, o)
			}
			if warming {
				continue
			}
			out, o := forward(e, of), constantRate(cfg.Optimizer)
			in.Logprobs = widen(out.Logprobs)
			if critic == e && values != nil {
				in.Values, o.ValueLearningRate = widen(out.Values), rate
			}
			require.NoError(t, policy.Loss(in, &result))
			take(e, &result, o)
		}
		if critic == e && step+1 == cfg.Critic.WarmupSteps {
			require.NoError(t, e.ResetOptimizer(ctx))
		}
	}
	if critic == e {
		return slices.Concat(e.Table, e.Values)
	}
	return slices.Concat(e.Table, critic.Table, critic.Values)
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

func TestAStepThatFindsNextToNothingToTrainOnSaysSo(t *testing.T) {
	t.Parallel()
	for flat, want := range map[uint64]bool{0: false, 40: true} {
		cfg := testConfig(t.TempDir())
		w := newWorld(vocab)
		w.flat = flat
		var log bytes.Buffer
		err := Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		said := strings.Contains(log.String(), "set trainer.selection.drop_zero_variance=false")
		require.Equal(t, want, said, log.String())
	}
}

func TestItLearns(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"by groups":              func(*Config) {},
		"by a value head":        func(c *Config) { critical(c, learner.CriticHead) },
		"by a critic of its own": func(c *Config) { critical(c, learner.CriticOwn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			cfg.Steps, cfg.Eta, cfg.Depth = 60, 2, -1
			change(&cfg)
			w := newWorld(vocab)
			var rewards []float64
			e := enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: cfg.Critic.Network == learner.CriticHead})
			err := Run(t.Context(), cfg, Deps{
				Engine: e, Stream: w, Prompts: prompts{vocab},
				NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
				Observer: func(ev schemas.Event) {
					if ev.Type == schemas.EventStepDone {
						rewards = append(rewards, ev.Metrics["reward/mean"])
					}
				},
			})
			require.NoError(t, err)
			require.Len(t, rewards, 60)
			require.Greater(t, mean10(rewards[50:]), 2*mean10(rewards[:10]))
			_, err = os.Stat(checkpoint.StepDir(cfg.Checkpoint.Dir, 60))
			require.NoError(t, err)
		})
	}
}

func mean10(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s / float64(len(x))
}
