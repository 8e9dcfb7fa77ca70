package assembly

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/metrics"
	"github.com/weir-rl/weir/trainer/relearn"
)

// openRun makes the process of a small run whose loss has no slope.
func openRun(t *testing.T, dir string) *Run {
	t.Helper()
	doors := builtin.Doors()
	doors.Losses = append(doors.Losses, loss.PerToken("broken", loss.Facts{}, func(loss.Token) (float64, float64) { return 1, math.NaN() }))
	cfg, origins, err := Resolve(doors, config.Sources{Flags: map[string]string{
		"run.dir": dir, "broker.listen": "127.0.0.1:0", "view.listen": "", "trainer.steps": "3", "trainer.batch_groups": "2", "trainer.group_size": "2",
		"trainer.minibatches": "1", "trainer.selection.drop_zero_variance": "false", "trainer.cold_start.steps": "5", "eval.every": "0",
		"eval.test_questions": "1", "trainer.loss.name": "broken", "model.hidden": "16", "model.intermediate": "32", "model.layers": "1",
		"trainer.checkpoint.keep": "4",
	}})
	require.NoError(t, err)
	s, err := New(cfg, Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler), Notes: t.Output(), Answers: t.Output()})
	require.NoError(t, err)
	s.Origins = origins
	return s
}

// replayBundle learns the step of a bundle again.
func replayBundle(t *testing.T, s *Run, file string) *relearn.Outcome {
	t.Helper()
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	dir := t.TempDir()
	b, err := relearn.ReadBundle(in, dir)
	require.NoError(t, err)
	var out *relearn.Outcome
	require.NoError(t, s.ReplaySteps(t.Context(), StepReplay{
		Step: b.Step, Until: b.Until, Unpacked: dir, Found: func(*relearn.Plan) {},
		Each: func(o *relearn.Outcome, _ bool) error { out = o; return nil },
	}))
	return out
}

// A step whose gradient is not finite takes no optimizer step, as before, and is bundled, once in a row of such steps; the bundle replays to
// the bit. A bundle that a killed process has begun is written by the next.
func TestAStepWithoutAFiniteGradientIsBundledAndReplays(t *testing.T) {
	t.Parallel()
	s := openRun(t, t.TempDir())
	r, err := s.OpenLocal(t.Context(), true)
	require.NoError(t, err)
	view := &quietView{}
	err = r.Train(t.Context(), view)
	r.Close()
	require.NoError(t, err)
	folder := filepath.Join(s.Config.Folder(), BundlesFolder)
	file := filepath.Join(folder, "step-000001.weir")
	require.Equal(t, []string{"step 1 is out of the ordinary: optimizer/skipped is 1: the gradient was not finite; weir replay --bundle " + file +
		" learns it again"}, view.notes)
	require.Equal(t, []string{"step-000001.weir"}, listNames(t, folder), "the steps after it are of the same row, and no scratch file is left")
	o := replayBundle(t, s, file)
	require.True(t, o.Equal(), "files %v, numbers %v", o.Files, o.Numbers)
	require.True(t, o.ComparesWeights())
	require.InDelta(t, 1, o.Now.Numbers[metrics.OptimizerSkipped.Name], 0)

	o3, closeAll := openOddSteps(s.newProcess(), nil)
	_, err = checkpoint.ShareStep(s.Config.Trainer.Checkpoint.Dir, o3.linkedDir(3), 3)
	require.NoError(t, err)
	closeAll()
	require.NoError(t, os.WriteFile(o3.file(2)+".tmp-1", nil, 0o644))
	_, closeAll = openOddSteps(s.newProcess(), nil)
	closeAll()
	require.Equal(t, []string{"step-000001.weir", "step-000003.weir"}, listNames(t, folder))
	require.True(t, replayBundle(t, s, filepath.Join(folder, "step-000003.weir")).Equal())
}

func listNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStepsOutOfTheOrdinary(t *testing.T) {
	t.Parallel()
	norm := func(x float64) map[string]float64 {
		return map[string]float64{metrics.OptimizerGradNorm.Name: x, metrics.LossPolicy.Name: 0.1}
	}
	cfg := config.Default(builtin.Doors())
	o := &oddSteps{cfg: cfg}
	for i := range leastNorms {
		require.Empty(t, o.describeOddity(norm(1000)), "too few steps before it")
		o.addNorm(norm(1 + 0.01*float64(i)))
	}
	for _, c := range []struct {
		numbers map[string]float64
		want    string
	}{
		{norm(10), ""},
		{norm(20), "optimizer/grad_norm is 20, 19.2 times its median over the 8 steps before"},
		{map[string]float64{metrics.LossPolicy.Name: math.NaN()}, "loss/policy is NaN"},
		{map[string]float64{metrics.CriticGradNorm.Name: math.Inf(1)}, "critic/grad_norm is +Inf"},
		{map[string]float64{metrics.CriticSkipped.Name: 2}, "critic/skipped is 2: the gradient was not finite"},
		{map[string]float64{}, ""},
	} {
		require.Equal(t, c.want, o.describeOddity(c.numbers))
	}
	for range 2 * normsForMedian {
		o.addNorm(norm(50))
	}
	require.Len(t, o.norms, normsForMedian)
	require.Empty(t, o.describeOddity(norm(60)), "the norms of today are these")
	cfg.Trainer.Bundles.GradientJump = 0
	require.Empty(t, o.describeOddity(norm(1e9)))
}

// The newest bundles stay, within their bounds; a step that is too large for them, or of which too little is kept, is not bundled.
func TestBundlesAreBounded(t *testing.T) {
	t.Parallel()
	cfg := config.Default(builtin.Doors())
	cfg.Run.Dir, cfg.Trainer.Bundles.Most, cfg.Trainer.Bundles.Bytes = t.TempDir(), 3, 100
	cfg.Trainer.Checkpoint.Dir = t.TempDir()
	o, closeAll := openOddSteps(process{cfg: cfg, log: slog.New(slog.DiscardHandler), build: runfolder.Build{}}, nil)
	defer closeAll()
	require.NoError(t, os.MkdirAll(o.folder(), 0o755))
	for _, step := range []int64{9, 10, 999_999, 1_000_000, 1_000_001} {
		require.NoError(t, os.WriteFile(o.file(step), make([]byte, 10), 0o644))
	}
	require.NoError(t, o.removeOldest())
	require.Equal(t, []string{"step-1000000.weir", "step-1000001.weir", "step-999999.weir"}, listNames(t, o.folder()))
	require.NoError(t, os.WriteFile(o.file(1_000_001), make([]byte, 95), 0o644))
	require.NoError(t, o.removeOldest())
	require.Equal(t, []string{"step-1000001.weir"}, listNames(t, o.folder()))

	odd := func(step int64) string {
		o.odd = false
		return o.addStep(&schemas.Event{Type: schemas.EventStepDone, Step: step, At: time.Now(), Metrics: map[string]float64{metrics.OptimizerSkipped.Name: 1}})
	}
	require.Empty(t, odd(1), "no checkpoint is kept")
	full := checkpoint.StepDir(cfg.Trainer.Checkpoint.Dir, 0)
	require.NoError(t, os.MkdirAll(full, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(full, "config.json"), make([]byte, 101), 0o644))
	require.Empty(t, odd(1), "no batch is kept")
	batch := checkpoint.BatchPath(cfg.Trainer.Checkpoint.Dir, 1)
	require.NoError(t, os.MkdirAll(filepath.Dir(batch), 0o755))
	require.NoError(t, os.WriteFile(batch, nil, 0o644))
	require.Empty(t, odd(1), "the files have more bytes than the bound")
	require.Equal(t, []string{"step-1000001.weir"}, listNames(t, o.folder()), "nothing is left of them")
	cfg.Trainer.Bundles.Bytes = 102
	require.Contains(t, odd(1), "weir replay --bundle "+o.file(1))
	_, err := os.Stat(o.linkedDir(1))
	require.NotErrorIs(t, err, fs.ErrNotExist, fmt.Sprint(o.linked))
}
