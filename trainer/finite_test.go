package trainer

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// finitePrompts are the first of prompts.
type finitePrompts struct {
	prompts
	end uint64
}

func (p finitePrompts) End() uint64 { return p.end }

func (p finitePrompts) Prompt(cursor uint64) Prompt {
	if cursor >= p.end {
		panic(fmt.Sprintf("cursor %d of %d", cursor, p.end))
	}
	return p.prompts.Prompt(cursor)
}

// trainFinite runs to the end of the prompts, starting again whenever the trainer was killed.
func trainFinite(t *testing.T, cfg Config, w *world, end uint64) []checkpoint.Record {
	t.Helper()
	for range 1000 {
		err := Run(t.Context(), cfg, Deps{
			Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: w, Prompts: finitePrompts{prompts{vocab}, end},
		})
		if errors.Is(err, errCrash) {
			continue
		}
		require.NoError(t, err)
		records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		return records
	}
	t.Fatal("the run never ends")
	return nil
}

// Invariant: a run whose prompts end trains on each prompt in at most one step, whatever kills it, and ends when each was trained on or
// dropped for good.
func TestInvariantEachPromptOfAnEndIsTrainedOnAtMostOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			draw := rand.New(rand.NewPCG(seed, 241))
			cfg := testConfig(t.TempDir())
			cfg.Steps, cfg.Eta, cfg.MaxAttempts = 1000, draw.IntN(3), 3
			cfg.Depth = draw.IntN(cfg.Eta+2) - 1
			cfg.Deterministic = draw.IntN(2) == 0
			cfg.Hold = draw.IntN(cfg.admissionLimits(cfg.Eta, cfg.Depth).Pace() + 1)
			if draw.IntN(4) == 0 {
				cfg.Advantage.Name = "remax"
			}
			if draw.IntN(4) == 0 {
				cfg.Hold, cfg.Selection.Accumulate.Rows, cfg.Selection.Accumulate.MaxRounds = 0, 20, 9
			}
			end := 1 + draw.Uint64N(30)
			w := newWorld(vocab)
			w.noise, w.lag = true, draw.Int64N(int64(cfg.Eta)+1)
			odds := []int{60, 400, 1 << 30}[draw.IntN(3)]
			w.crash = func(string) error {
				if draw.IntN(odds) == 0 {
					return errCrash
				}
				return nil
			}
			records := trainFinite(t, cfg, w, end)
			require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: 1}, nil).Err())
			trained := map[uint64]int64{}
			for i, r := range records {
				for _, g := range r.Groups {
					cursor, _, ok := batch.ParseGroupID(g.Group)
					require.True(t, ok)
					require.Less(t, cursor, end)
					require.NotContains(t, trained, cursor, "group %s", g.Group)
					trained[cursor] = r.Step
				}
				if i > 0 && i < len(records)-1 && cfg.Selection.Accumulate.Rows == 0 {
					require.Len(t, r.Groups, cfg.BatchGroups, "step %d of %d", r.Step, len(records)-1)
				}
			}
			issued := map[uint64]bool{}
			for id := range w.issued {
				cursor, _, _, ok := batch.ParseTicketID(id)
				require.True(t, ok)
				issued[cursor] = true
			}
			require.Len(t, issued, int(end), "every prompt was asked for")
			if odds == 1<<30 && !cfg.Selection.DropZeroVariance {
				require.NotEmpty(t, trained)
			}
			require.Less(t, int64(len(records)-1), cfg.Steps)
		})
	}
}

// Where nothing is dropped every group is trained on: the last step may be short. A run that has ended ends at once when it is started
// again.
func TestTheLastStepTrainsOnWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ end, eta, hold, steps int }{
		{9, 0, 0, 3}, {10, 0, 0, 4}, {11, 3, 0, 4}, {11, 3, 2, 4}, {2, 2, 0, 1}, {1, 2, 2, 1},
	} {
		for _, deterministic := range []bool{false, true} {
			cfg := testConfig(t.TempDir())
			cfg.Steps, cfg.Eta, cfg.Depth, cfg.Hold, cfg.Deterministic = 50, c.eta, -1, c.hold, deterministic
			cfg.Selection.DropZeroVariance = false
			w := newWorld(vocab)
			records := trainFinite(t, cfg, w, uint64(c.end))
			require.Len(t, records, c.steps+1, "%+v", c)
			groups := 0
			for _, r := range records {
				groups += len(r.Groups)
				require.Empty(t, r.Rejected)
			}
			require.Equal(t, c.end, groups)
			require.Empty(t, records[c.steps].Open)
			require.Len(t, w.issued, c.end*cfg.GroupSize)
			require.Len(t, trainFinite(t, cfg, w, uint64(c.end)), c.steps+1, "it is over")
		}
	}
}

// Prompts with an end are alone in their run.
func TestAMixPassesTheEndOn(t *testing.T) {
	t.Parallel()
	ends := endingOrder{7}
	m, err := Mix(Task{Name: "log", Weight: 3, Prompts: ends})
	require.NoError(t, err)
	require.Equal(t, uint64(7), endOf(m))
	m, err = Mix(Task{Name: "a", Prompts: endless{}}, Task{Name: "b", Prompts: endless{}})
	require.NoError(t, err)
	require.Equal(t, uint64(math.MaxUint64), endOf(m))
	require.Equal(t, uint64(math.MaxUint64), endOf(prompts{vocab}))
	_, err = Mix(Task{Name: "log", Prompts: ends}, Task{Name: "b", Prompts: endless{}})
	require.ErrorContains(t, err, `task "log": its prompts end`)
}

type endless struct{}

func (endless) Prompt(cursor uint64) schemas.Prompt { return schemas.Prompt{ID: fmt.Sprint(cursor)} }

type endingOrder struct{ end uint64 }

func (o endingOrder) End() uint64                         { return o.end }
func (o endingOrder) Prompt(cursor uint64) schemas.Prompt { return endless{}.Prompt(cursor) }
