package trainer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// naiveUses says from the records alone what each step had to train on: the groups of the step before that are young enough, as long as
// fewer than k steps have used them, else groups that no step has used.
func naiveUses(t *testing.T, records []checkpoint.Record, k int, etaAt func(step int64) int64) {
	t.Helper()
	used := map[string]int{}
	for i, r := range records[1:] {
		before := records[i] // the records begin with step 0
		var again []string
		for _, g := range before.Groups {
			if max(1, before.Use) < k && !slices.ContainsFunc(g.Used(), func(m checkpoint.RecordMember) bool {
				return r.Step-1-m.Oldest > etaAt(r.Step)
			}) {
				again = append(again, g.Group)
			}
		}
		var have []string
		for _, g := range r.Groups {
			have = append(have, g.Group)
			used[g.Group]++
			if len(again) == 0 {
				require.Equal(t, 1, used[g.Group], "step %d: a fresh group", r.Step)
			}
			require.LessOrEqual(t, used[g.Group], k)
		}
		if len(again) > 0 {
			require.Equal(t, again, have, "step %d uses the batch before", r.Step)
			require.Equal(t, max(1, before.Use)+1, r.Use)
		} else {
			require.Zero(t, r.Use)
		}
	}
}

// Invariant: a trajectory is trained on in at most trainer.reuse steps, and in none that begins more than eta versions after its oldest
// token.
func TestInvariantATrajectoryIsTrainedOnInAtMostReuseSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			draw := rand.New(rand.NewPCG(seed, 24))
			cfg := testConfig(t.TempDir())
			cfg.Reuse = 1 + int(seed%4)
			cfg.Steps, cfg.Eta = 8, cfg.Reuse-1+draw.IntN(3)
			cfg.Depth = draw.IntN(cfg.Eta+2) - 1
			cfg.Deterministic = draw.IntN(2) == 0
			cfg.Checkpoint.FullEvery, cfg.Checkpoint.Batches = 1+draw.Int64N(4), 1-2*draw.IntN(2)
			if draw.IntN(3) == 0 {
				cfg.Advantage.Name = "remax"
			}
			w := newWorld(vocab)
			w.noise, w.lag = true, draw.Int64N(int64(cfg.Eta)+1)
			odds := []int{60, 400, 1 << 30}[draw.IntN(3)]
			w.crash = func(string) error {
				if draw.IntN(odds) == 0 {
					return errCrash
				}
				return nil
			}
			train(t, cfg, w)
			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			require.Len(t, records, int(cfg.Steps)+1)
			naiveUses(t, records, cfg.Reuse, func(int64) int64 { return int64(cfg.Eta) })
			require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
			if cfg.Reuse > 1 {
				most := slices.MaxFunc(records, func(a, b checkpoint.Record) int { return a.Use - b.Use }).Use
				require.Greater(t, most, 1)
				require.Error(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: most - 1}, nil).Err())
			}
		})
	}
}

// A run asks for a k-th of the rollouts, and for none that nothing uses.
func TestABatchThatIsUsedAgainCostsNoRollouts(t *testing.T) {
	t.Parallel()
	issued := func(reuse int) int {
		cfg := testConfig(t.TempDir())
		cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth = 12, reuse, 5, -1
		cfg.Selection.DropZeroVariance = false
		w := newWorld(vocab)
		train(t, cfg, w)
		records := audit(t, cfg, w)
		for _, r := range records {
			require.Empty(t, r.Rejected, "step %d", r.Step)
		}
		require.Empty(t, records[12].Open, "nothing is asked for that no step is left for")
		return len(w.issued)
	}
	once := issued(1)
	require.Equal(t, 12*3*4, once)
	require.Equal(t, once/2, issued(2))
	require.Equal(t, once/4, issued(4))
}

func TestReuseChangesOverARestartAndTheAuditKnowsBoth(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	w := newWorld(vocab)
	run := func(steps int64, reuse int) []checkpoint.Record {
		cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth = steps, reuse, 4, -1
		settings := map[string]string{"trainer.reuse": string(rune('0' + reuse))}
		require.NoError(t, Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Settings: settings,
		}))
		records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		return records
	}
	run(4, 3)
	run(5, 1) // the batch of step 4 has had one use, and no further
	records := run(8, 2)
	var uses []int
	for _, r := range records[1:] {
		uses = append(uses, max(1, r.Use))
	}
	require.Equal(t, []int{1, 2, 3, 1, 1, 2, 1, 2}, uses)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: 4, Reuse: 2}, nil).Err(), "the record notes that it was 3")
	for i := range records {
		records[i].Changed = nil
	}
	r := auditing.Check(records, auditing.Bounds{Eta: 4, Reuse: 2}, nil)
	require.EqualValues(t, 12, r.Twice.Count)
	require.Equal(t, "g000000-a0-0 in step 3, its use number 3: bound 2", r.Twice.First[0])
	require.Equal(t, 4*12, r.Trained)
	require.Equal(t, 4*12, r.Again)
}

// A lower eta that an operator sets ends the uses of what is too old for it; the run goes on with fresh groups.
func TestALowerEtaEndsFurtherUses(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth = 8, 4, 3, -1
	w := newWorld(vocab)
	observe(t, cfg, w, func(e schemas.Event) {
		if e.Step == 1 {
			operate(t, w, func(c *schemas.Control) { c.Eta, c.Depth = 1, 0 })
		}
	})
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	naiveUses(t, records, 4, func(step int64) int64 {
		if step > 2 {
			return 1
		}
		return 3
	})
	require.Equal(t, 2, records[2].Use)
	require.Zero(t, records[3].Use)
	require.Equal(t, 2, records[4].Use)
}

// A kept batch that was damaged or removed is named, and used no more.
func TestABatchThatIsGoneIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, []byte("?"), 0o600) },
	} {
		cfg := testConfig(t.TempDir())
		cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth, cfg.Checkpoint.FullEvery = 1, 3, 2, -1, 1
		w := newWorld(vocab)
		train(t, cfg, w)
		require.NoError(t, spoil(checkpoint.BatchPath(cfg.Checkpoint.Dir, 1)), name)
		cfg.Steps = 4
		var log bytes.Buffer
		require.NoError(t, Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}))
		require.Contains(t, log.String(), "the newest batch is not used again", name)
		records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		require.Equal(t, []int{0, 0, 2, 3}, []int{records[1].Use, records[2].Use, records[3].Use, records[4].Use}, name)
		require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: 2, Reuse: 3}, nil).Err())
	}
}

// lateFault is an engine that makes no number of one trajectory once it is armed.
type lateFault struct {
	dying
	armed *bool
}

func (e *lateFault) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	return e.dying.Evaluate(ctx, parts, func(i int, o *gpu.Outputs) error {
		if *e.armed && i == 0 {
			for t := range o.Logprobs {
				o.Logprobs[t] = float32(math.NaN())
			}
			*e.armed = false
		}
		return each(i, o)
	})
}

// A trajectory that spoils its second use is not used again, and its group with it; the others are.
func TestATrajectoryThatSpoilsAFurtherUseIsLeftOut(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth = 4, 2, 2, -1
	w, armed := newWorld(vocab), false
	e := &lateFault{dying{enginetest.NewBigram(vocab), w.crash}, &armed}
	done := false
	require.NoError(t, Run(t.Context(), cfg, Deps{Engine: e, Stream: w, Prompts: prompts{vocab}, After: func(stage string) {
		if stage == "issue" && !done {
			if _, err := os.Stat(checkpoint.BatchPath(cfg.Checkpoint.Dir, 1)); err == nil {
				armed, done = true, true
			}
		}
	}}))
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records[1].Groups, 3)
	require.Equal(t, 2, records[2].Use)
	require.Len(t, records[2].Groups, 2)
	require.Zero(t, records[3].Use)
	require.Len(t, records[3].Groups, 3)
	require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: 2, Reuse: 2}, nil).Err())
}

// A stream that is lost between two uses of a batch takes nothing from the second.
func TestABatchIsUsedAgainThoughItsStreamIsLost(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth = 3, 2, 1, -1
	w := newWorld(vocab)
	train(t, cfg, w)
	before, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Zero(t, before[3].Use)
	w.messages, w.acked, w.purged = nil, map[uint64]bool{}, 0
	w.created = w.created.Add(1e9)
	w.tickets, w.issued = nil, map[string]int{}
	cfg.Steps = 6
	train(t, cfg, w)
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0, 2}, []int{records[4].Use, records[5].Use, records[6].Use})
	require.Equal(t, ids(records[3]), ids(records[4]))
	require.NotEqual(t, records[3].Created, records[5].Created)
	report := auditing.Check(records, auditing.Bounds{Eta: 1, Reuse: 2}, nil)
	require.NoError(t, report.Err(), "%+v", report)
}

// A drain ends a run before a further use too.
func TestADrainEndsFurtherUses(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Reuse, cfg.Eta, cfg.Depth = 1<<20, 1<<4, 1<<4, -1
	w := newWorld(vocab)
	observe(t, cfg, w, func(e schemas.Event) {
		if e.Step == 3 {
			operate(t, w, func(c *schemas.Control) { c.Draining = true })
		}
	})
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Less(t, len(records), 1000)
}
