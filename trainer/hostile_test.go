package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

// Defect P3: one well-formed trajectory stopped the trainer, and each start after it.
func TestOneWellFormedTrajectoryDoesNotStopTheTrainer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*schemas.Trajectory){
		"rewards that overflow together": func(t *schemas.Trajectory) {
			t.Reward = math.MaxFloat64
			t.Turns = []schemas.Turn{{Start: 2, End: 3, ProcessReward: math.MaxFloat64}}
		},
		"a reward that overflows a group's deviation": func(t *schemas.Trajectory) { t.Reward = 1.7e308 },
		"a temperature that no engine takes":          func(t *schemas.Trajectory) { t.Segments[0].Temperature = 2e30 },
		"a temperature whose inverse is infinite":     func(t *schemas.Trajectory) { t.Segments[0].Temperature = 1e-42 },
		"another task":                           func(t *schemas.Trajectory) { t.Task = "another" },
		"a reward of an agent that took no part": func(t *schemas.Trajectory) { t.AgentRewards = map[string]float64{"judge": 1} },
		"a reward of an agent without bound":     func(t *schemas.Trajectory) { t.AgentRewards = map[string]float64{"": 1.7e308} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			w := newWorld(vocab)
			w.change = func(sequence uint64, tr *schemas.Trajectory) {
				if sequence == 1 || sequence == 6 || sequence == 20 {
					change(tr)
					require.NoError(t, tr.Validate())
				}
			}
			train(t, cfg, w)
			refused := 0
			for _, r := range audit(t, cfg, w) {
				for _, x := range r.Rejected {
					if x.Reason == schemas.ReasonPoisoned || x.Reason == schemas.ReasonForeign {
						require.Contains(t, []uint64{1, 6, 20}, x.Sequence)
						refused++
					}
				}
			}
			require.Equal(t, 3, refused)
		})
	}
}

// pill is the token that makes no number of a row that begins with it, where an engine is poisonable.
const pill = vocab - 1

// poisonable is an engine with a fault that nobody has foreseen.
type poisonable struct {
	dying
	always bool
}

func newPoisonable(e *enginetest.Bigram, always bool) *poisonable {
	return &poisonable{dying{e, func(string) error { return nil }}, always}
}

func (e *poisonable) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	return e.dying.Evaluate(ctx, parts, func(i int, o *gpu.Outputs) error {
		e.spoil(parts[i], o)
		return each(i, o)
	})
}

func (e *poisonable) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) (*gpu.Gradients, error)) error {
	return e.dying.Accumulate(ctx, parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
		e.spoil(parts[i], o)
		return each(i, o)
	})
}

func (e *poisonable) spoil(b *gpu.Batch, out *gpu.Outputs) {
	for i := range len(b.Offsets) - 1 {
		if b.Tokens[b.Offsets[i]] == pill || e.always {
			for t := b.Offsets[i]; t < b.Offsets[i+1] && out.Logprobs != nil; t++ {
				out.Logprobs[t] = float32(math.NaN())
			}
		}
	}
}

// Defect P3: a fault of a step that lies in one trajectory takes that trajectory out of the run, as if it had been refused when
// it came, and not the trainer.
func TestATrajectoryThatSpoilsAStepIsRefusedAndTheStepBegunAnew(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"before the update":           func(*Config) {},
		"within the update":           func(c *Config) { c.Minibatches = 1 },
		"in the second minibatch":     func(c *Config) { c.Proximal, c.Minibatches, c.MicroTokens = loss.ApproximateRollout, 3, 12 },
		"stale, and two epochs":       func(c *Config) { c.Eta, c.Depth, c.Epochs = 2, 2, 2 },
		"over the whole minibatch":    func(c *Config) { c.Loss.Name, c.Minibatches, c.MicroTokens = "m2po", 1, 12 },
		"with a critic of its own":    func(c *Config) { critical(c, learner.CriticOwn) },
		"with a critic on its trunk":  func(c *Config) { critical(c, learner.CriticHead) },
		"in order, and without delay": func(c *Config) { c.Deterministic = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(spoil func(*schemas.Trajectory), crash func(string) error) ([]float32, [][]string, []string) {
				cfg := testConfig(t.TempDir())
				change(&cfg)
				w := newWorld(vocab)
				if crash != nil {
					w.crash = crash
				}
				w.change = func(sequence uint64, tr *schemas.Trajectory) {
					if slices.Contains([]uint64{2, 10, 11}, sequence) {
						spoil(tr)
					}
				}
				for range 1000 {
					e := &poisonable{dying: dying{enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: cfg.Critic.Network == learner.CriticHead}), w.crash}}
					err := Run(t.Context(), cfg, Deps{
						Engine: e, Stream: w, Prompts: prompts{vocab},
						NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
					})
					if errors.Is(err, errCrash) {
						continue
					}
					require.NoError(t, err)
					if crash == nil {
						require.Equal(t, 1, w.taken, "taking a run again is for a stream that was made anew")
					}
					var used [][]string
					var poisoned []string
					for _, r := range audit(t, cfg, w) {
						used = append(used, ids(r))
						for _, x := range r.Rejected {
							if x.Reason == schemas.ReasonPoisoned {
								poisoned = append(poisoned, fmt.Sprint(x.ID, " at ", x.Sequence))
							}
						}
					}
					return slices.Concat(e.Table, e.Values), used, poisoned
				}
				t.Fatal("the run never ends")
				return nil, nil, nil
			}
			spoil := func(tr *schemas.Trajectory) { tr.Segments[0].Tokens[0] = pill }
			want, wantUsed, wantPoisoned := run(func(tr *schemas.Trajectory) { tr.Stop = schemas.StopError }, nil)
			require.Len(t, wantPoisoned, 3)
			got, used, poisoned := run(spoil, nil)
			require.Equal(t, [][]any{{wantUsed, wantPoisoned}}, [][]any{{used, poisoned}})
			require.Equal(t, want, got, "bit for bit")
			rng := rand.New(rand.NewPCG(3, 1))
			got, used, poisoned = run(spoil, func(string) error {
				if rng.IntN(80) == 0 {
					return errCrash
				}
				return nil
			})
			require.Equal(t, [][]any{{wantUsed, wantPoisoned}}, [][]any{{used, poisoned}}, "killed at random")
			require.Equal(t, want, got, "killed at random, bit for bit")
		})
	}
}

func TestAMachineThatSpoilsEverythingEndsTheRunAndNothingIsRefusedForGood(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	w := newWorld(vocab)
	broken := func(always bool) error {
		return Run(t.Context(), cfg, Deps{
			Engine: newPoisonable(enginetest.NewBigram(vocab), always), Stream: w, Prompts: prompts{vocab},
		})
	}
	for range 2 {
		require.ErrorContains(t, broken(true), "8 trajectories of one step were refused for its faults: the machine or the weights may be at fault")
	}
	require.NoError(t, broken(false))
	for _, r := range audit(t, cfg, w) {
		for _, x := range r.Rejected {
			require.NotEqual(t, schemas.ReasonPoisoned, x.Reason, "once the machine is mended, nothing is held against what came")
		}
	}
}

// forgetful is a world whose broker loses its store just before a feed is opened for the second time.
type forgetful struct {
	*world
	feeds int
}

func (f *forgetful) Feed(ctx context.Context, from *streams.Position, known streams.Mark, maxPending int) (Feed, error) {
	if f.feeds++; f.feeds == 2 {
		f.mu.Lock()
		f.created, f.messages, f.purged, f.tickets, f.issued = f.created.Add(time.Hour), nil, 0, nil, map[string]int{}
		f.mu.Unlock()
	}
	return f.world.Feed(ctx, from, known, maxPending)
}

// What spoiled a step is known by its sequence: in a stream that was made anew while the step was begun anew, that sequence is
// another trajectory's.
func TestWhatSpoiledAStepIsForgottenWithItsStream(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	w := &forgetful{world: newWorld(vocab)}
	w.change = func(sequence uint64, tr *schemas.Trajectory) {
		if sequence == 2 && w.feeds == 1 {
			tr.Segments[0].Tokens[0] = pill
		}
	}
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: newPoisonable(enginetest.NewBigram(vocab), false), Stream: w, Prompts: prompts{vocab},
	}))
	require.Greater(t, w.feeds, 2)
	for _, r := range audit(t, cfg, w.world) {
		for _, x := range r.Rejected {
			require.NotEqual(t, schemas.ReasonPoisoned, x.Reason, "%s at %d was honest", x.ID, x.Sequence)
		}
	}
}

// Finding O4 of the second review of operating: what was refused was counted at the next step, so that a flood showed nowhere while
// it lasted; and it counted as work, so that a trainer without producers was ready.
func TestRefusalsAreCountedWhenTheyAreRefusedAndAreNoWork(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	w := newWorld(vocab)
	w.change = func(sequence uint64, tr *schemas.Trajectory) {
		if sequence <= 3 {
			tr.Task = "another"
		}
	}
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	foreign, looked := m.rejected.WithLabelValues(string(schemas.ReasonForeign)), false
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Metrics: m,
		After: func(stage string) {
			if stage == "batch" && !looked {
				looked = true
				require.EqualValues(t, 3, testutil.ToFloat64(foreign), "no step is done yet")
				require.LessOrEqual(t, testutil.ToFloat64(m.taken), testutil.ToFloat64(m.deliveries)-3)
			}
		},
	}))
	require.True(t, looked)
	require.EqualValues(t, 3, testutil.ToFloat64(foreign), "the step counts them no second time")
	require.Positive(t, testutil.ToFloat64(m.taken))
}
