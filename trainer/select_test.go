package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/selection"
)

func TestASamplePassedOverIsUsedUp(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Selection.Resample.By, cfg.Selection.Resample.Take = selection.ResampleCorrect, 2
	metrics := map[int64]map[string]float64{}
	w := newWorld(vocab)
	observe(t, cfg, w, func(e schemas.Event) { metrics[e.Step] = e.Metrics })
	for _, r := range audit(t, cfg, w)[1:] {
		var all runningMean
		for _, g := range r.Groups {
			require.Len(t, g.Members, cfg.GroupSize, "all that came are used up")
			taken := 0
			for _, m := range g.Members {
				all.addValue(m.Reward)
				if !m.PassedOver {
					taken++
				}
			}
			require.Equal(t, 2, taken)
		}
		got := metrics[r.Step]
		require.InDelta(t, all.value(), got["reward/mean"], 1e-12, "of all: the policy is no better for what is passed over")
		require.InDelta(t, 2*cfg.BatchGroups, got["batch/trajectories"], 0)
		require.InDelta(t, 2*cfg.BatchGroups, got["batch/passed_over"], 0)
	}
}

func TestTheSelectionTakesRightAndWrongInProportion(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.GroupSize, cfg.Selection.Resample.By, cfg.Selection.Resample.Take = 8, selection.ResampleCorrect, 4
	w := newWorld(vocab)
	train(t, cfg, w)
	varied := false
	for _, r := range audit(t, cfg, w)[1:] {
		for _, g := range r.Groups {
			var right, taken, takenRight float64
			for _, m := range g.Members {
				if m.Reward >= 1 {
					right++
				}
				if !m.PassedOver {
					taken++
					if m.Reward >= 1 {
						takenRight++
					}
				}
			}
			require.InDelta(t, 4, taken, 0)
			require.InDelta(t, right/2, takenRight, 1)
			varied = varied || right > 0 && right < 8
		}
	}
	require.True(t, varied)
}

func TestTheSelectionNamesWhatItCannotTake(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Selection.Resample.By = selection.ResampleBest
	require.ErrorContains(t, cfg.Validate(), "selection.resample.take: 0")
	cfg.Selection.Resample.Take = 5
	require.ErrorContains(t, cfg.Validate(), "group_size (4)")
	cfg.Selection.Resample.Take, cfg.Advantage.Name = 1, "grpo_passk"
	require.ErrorContains(t, cfg.Validate(), "between 2, what advantage grpo_passk compares")
}

// L0's rule: a step is counted in rows, and prompts are issued until there are enough.
func TestAStepGathersRows(t *testing.T) {
	t.Parallel()
	for _, eta := range []int{0, 2} {
		cfg := testConfig(t.TempDir())
		cfg.Eta, cfg.Depth, cfg.Steps = eta, eta, 8
		cfg.Selection.Accumulate = selection.Accumulate{Rows: 29, MaxRounds: 20}
		w := newWorld(vocab)
		train(t, cfg, w)
		for _, r := range audit(t, cfg, w)[1:] {
			rows := 0
			for _, g := range r.Groups {
				if eta > 0 {
					require.Less(t, rows, 29, "no group beyond those that are needed")
				}
				rows += len(g.Members)
			}
			if eta == 0 {
				require.Zero(t, len(r.Groups)%cfg.BatchGroups, "whole rounds: what is left over could not be used later")
			}
			require.GreaterOrEqual(t, rows, 29)
			require.Greater(t, len(r.Groups), cfg.BatchGroups)
		}
	}
	cfg := testConfig(t.TempDir())
	cfg.Selection.Accumulate = selection.Accumulate{Rows: 100, MaxRounds: 2}
	err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: newWorld(vocab), Prompts: prompts{vocab}})
	require.ErrorIs(t, err, selection.ErrTooFew)
	require.ErrorContains(t, err, "lower rows or raise max_rounds")
	cfg.Eta, cfg.Depth, cfg.Hold = 2, 2, 1
	require.ErrorContains(t, cfg.Validate(), "hold: 1: counts batches of groups")
}

func TestFewRowsMakeASmallStep(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth, cfg.Selection.Accumulate.Rows = 1, 1, 5
	w := newWorld(vocab)
	train(t, cfg, w)
	for _, r := range audit(t, cfg, w)[1:] {
		require.Len(t, r.Groups, 2)
	}
}

// A checkpoint that is written anew while a step gathers rows knows how many prompts were issued for it already.
func TestAStepThatIsKilledWhileItGathersGathersTheSame(t *testing.T) {
	t.Parallel()
	prepare := func() (Config, *world) {
		cfg := testConfig(t.TempDir())
		cfg.Deterministic, cfg.Steps, cfg.Checkpoint.Messages = true, 3, 12
		cfg.Selection.Accumulate = selection.Accumulate{Rows: 30, MaxRounds: 1000}
		w := newWorld(vocab)
		w.flat = 5
		return cfg, w
	}
	cfg, w := prepare()
	want := train(t, cfg, w)
	calls := 0
	cfg, w = prepare()
	w.crash = func(string) error {
		if calls++; calls%97 == 0 {
			return errCrash
		}
		return nil
	}
	require.Equal(t, want, train(t, cfg, w))
	audit(t, cfg, w)
}
