package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// resolve reads a configuration with the built-in parts.
func resolve(from config.Sources) (*config.Config, map[string]string, error) {
	cfg, origins, err := config.Resolve(builtin.Doors(), from)
	return cfg, origins, config.Invalid(err)
}

// twoArms is a comparison of two arms with two seeds for testing.
const twoArms = `
name: two
settings: {trainer.steps: 4}
arms: {a: {}, b: {trainer.eta: 0}}
seeds: {tuning: [1], testing: [11, 12]}
claims: [b final > a final]
`

// planOf plans a comparison over a folder.
func planOf(t *testing.T, text, dir string) *Plan {
	t.Helper()
	f, err := ReadFile(writeComparison(t, text))
	require.NoError(t, err)
	p, err := f.MakePlan(dir, Testing, resolve)
	require.NoError(t, err)
	return p
}

// scripted is a runner that writes the numbers of a run, or fails.
type scripted struct {
	mu      sync.Mutex
	trained []string
	// fail has the errors of runs, by name; before is called at the start of each.
	fail   map[string]error
	before func(ctx context.Context, r *Run)
}

func (s *scripted) TrainRun(ctx context.Context, r *Run) error {
	s.mu.Lock()
	s.trained = append(s.trained, r.Name)
	s.mu.Unlock()
	if s.before != nil {
		s.before(ctx, r)
	}
	if err := s.fail[r.Name]; err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	default:
	}
	return writeNumbers(r, len(r.Arm)+int(r.Arm[0]-'a'))
}

// writeNumbers writes what a finished run leaves: its score is the better the greater skill is.
func writeNumbers(r *Run, skill int) error {
	if err := os.MkdirAll(r.Folder, 0o755); err != nil {
		return err
	}
	final := 0.4 + 0.1*float64(skill) + 0.01*float64(r.Seed)
	var text bytes.Buffer
	for _, rec := range []report.Record{
		{Type: "evaluated", Metrics: map[string]float64{"eval/exact_match": 0.1}},
		{Type: "step_done", Step: 4, PolicyVersion: 4, Metrics: map[string]float64{"total/tokens": 1e6}},
		{Type: "evaluated", PolicyVersion: 4, Metrics: map[string]float64{"eval/exact_match": final}},
		{Type: "tested", PolicyVersion: 4, Step: 4, Metrics: map[string]float64{"test/exact_match_greedy": final, "test/exact_match_sampled": final - 0.1}},
	} {
		line, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return os.WriteFile(filepath.Join(r.Folder, "metrics.jsonl"), text.Bytes(), 0o644)
}

func silent(string) {}

// Runs of a seed are side by side, differ in nothing but the arm's settings, and have the seed.
func TestThePlanPairsRuns(t *testing.T) {
	t.Parallel()
	p := planOf(t, twoArms, t.TempDir())
	var names []string
	for _, r := range p.Runs {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"a-seed-11", "b-seed-11", "a-seed-12", "b-seed-12"}, names)
	require.Contains(t, p.Runs[0].arguments(), "--run.seed=11")
	require.Contains(t, p.Runs[1].arguments(), "--trainer.eta=0")
	a, b := p.Runs[0].keys, p.Runs[1].keys
	for key := range b {
		if key != "run.name" && key != "trainer.eta" {
			require.Equal(t, a[key], b[key], key)
		}
	}
	all, err := p.File.MakePlan(p.Dir, All, resolve)
	require.NoError(t, err)
	require.Len(t, all.Runs, 6)
	require.True(t, all.Runs[0].Tuning)
}

// A wrong key of an arm or of the settings is named by its path in the file, once, with all others.
func TestFaultsOfSettingsHaveTheirPaths(t *testing.T) {
	t.Parallel()
	f, err := ReadFile(writeComparison(t, `
settings: {trainer.stepps: 4}
arms: {a: {trainer.eta: -1}, b: {trainer.loss.name: magic, trainer.batch_groups: x}}
seeds: {testing: [1]}
name: faulty
`))
	require.NoError(t, err)
	_, err = f.MakePlan(t.TempDir(), Testing, resolve)
	invalid, ok := errors.AsType[*config.InvalidError](err)
	require.True(t, ok)
	var keys []string
	for _, fault := range invalid.Faults {
		keys = append(keys, fault.Key)
	}
	slices.Sort(keys)
	require.Equal(t, []string{"arms.a.trainer.eta", "arms.b.trainer.batch_groups", "arms.b.trainer.loss.name", "settings.trainer.stepps"}, keys, "%v", err)
}

func TestAFailedRunFailsAloneAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := planOf(t, twoArms, dir)
	s := &scripted{fail: map[string]error{"b-seed-11": &FailedError{How: "weir up ended with exit status 1", LastWords: "weir: loss is NaN"}}}
	outcomes, err := p.Execute(t.Context(), s, 2, silent)
	require.NoError(t, err)
	require.Len(t, s.trained, 4)
	require.Equal(t, StateFailed, outcomes[1].State)
	r, err := p.Report(outcomes)
	require.NoError(t, err)
	require.Equal(t, []int64{12}, r.Claims[0].Seeds)
	require.Equal(t, Undecided, r.Claims[0].Verdict)
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	require.Contains(t, out.String(), "b-seed-11 failed: weir up ended with exit status 1\n  weir: loss is NaN")
	require.NoError(t, r.Write())

	s = &scripted{}
	outcomes, err = planOf(t, twoArms, dir).Execute(t.Context(), s, 2, silent)
	require.NoError(t, err)
	require.Equal(t, []string{"b-seed-11"}, s.trained, "a finished run is not run again")
	r, err = p.Report(outcomes)
	require.NoError(t, err)
	require.Equal(t, Held, r.Claims[0].Verdict)
	require.InDelta(t, 0.615, r.Testing.Arms[0].Final.Value, 1e-9)
	require.InDelta(t, 1, r.Testing.Arms[1].FinalImproves.Value, 1e-9)
	require.NoError(t, r.Write())
	for _, name := range []string{JSONFile, MarkdownFile, PictureFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NotContains(t, string(text), "NaN")
	}
}

// After an interruption no further run is begun, and the same plan goes on with the unfinished runs.
func TestAnInterruptedComparisonGoesOn(t *testing.T) {
	t.Parallel()
	p := planOf(t, twoArms, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	s := &scripted{before: func(_ context.Context, r *Run) {
		if r.Name == "b-seed-11" {
			stop()
		}
	}}
	outcomes, err := p.Execute(ctx, s, 1, silent)
	require.NoError(t, err)
	require.Equal(t, []string{"a-seed-11", "b-seed-11"}, s.trained)
	require.Equal(t, []string{StateFinished, StateWaiting, StateWaiting, StateWaiting}, []string{outcomes[0].State, outcomes[1].State, outcomes[2].State, outcomes[3].State})
	s = &scripted{}
	_, err = p.Execute(t.Context(), s, 1, silent)
	require.NoError(t, err)
	require.Equal(t, []string{"b-seed-11", "a-seed-12", "b-seed-12"}, s.trained)
}

// Finding 6 of the ninth reader: of two weir compare on one folder each took the runs that the other trained for failed, and wrote a report
// that says so.
func TestTwoComparisonsDoNotTrainTheSameRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var second error
	s := &scripted{before: func(ctx context.Context, r *Run) {
		other := &scripted{}
		_, err := planOf(t, twoArms, dir).Execute(ctx, other, 1, silent)
		second = errors.Join(second, err)
		if len(other.trained) > 0 {
			second = errors.New("it trained " + r.Name)
		}
	}}
	outcomes, err := planOf(t, twoArms, dir).Execute(t.Context(), s, 1, silent)
	require.NoError(t, err)
	require.ErrorContains(t, second, dir+": another weir compare trains the runs there")
	for _, o := range outcomes {
		require.Equal(t, StateFinished, o.State)
	}
	_, err = planOf(t, twoArms, dir).Execute(t.Context(), s, 1, silent)
	require.NoError(t, err, "the folder is free again")
}

func TestAFullDiskEndsTheComparisonByName(t *testing.T) {
	t.Parallel()
	p := planOf(t, twoArms, t.TempDir())
	s := &scripted{fail: map[string]error{"a-seed-11": fmt.Errorf("%w: write", syscall.ENOSPC)}}
	_, err := p.Execute(t.Context(), s, 1, silent)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "the disk is full: free space, and the same command goes on")
	require.Equal(t, []string{"a-seed-11"}, s.trained)
}

// A run of another configuration is named with the keys that differ, and is not used.
func TestARunOfAnotherConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := planOf(t, twoArms, dir).Runs[1]
	cfg, _, err := resolve(config.Sources{Flags: r.keys})
	require.NoError(t, err)
	text, err := config.YAML(cfg.Portable())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(r.Folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(r.Folder, "config.yaml"), text, 0o644))
	again := planOf(t, twoArms, dir) // the same configuration is no other
	again.File.Arms[1].Settings["trainer.eta"] = "2"
	_, err = again.File.MakePlan(dir, Testing, resolve)
	require.ErrorContains(t, err, "run b-seed-11 in "+r.Folder+" was begun with another configuration")
	require.ErrorContains(t, err, "trainer.eta: 2, and the run was begun with 0")
}

func TestParallelRunsFitTheMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gibibytes int64
		cores     int
		want      int
	}{{0, 1, 1}, {0, 8, 4}, {4, 16, 2}, {1, 16, 1}} {
		require.Equal(t, c.want, ParallelRuns(machine.Memory{Bytes: c.gibibytes << 30}, c.cores))
	}
}

// A process that does not end in order is killed; the outcome of a process that fails has its last lines of output.
func TestProcessesOfRuns(t *testing.T) {
	t.Parallel()
	r := planOf(t, twoArms, t.TempDir()).Runs[0]
	shell := func(script string) *Processes {
		return &Processes{Program: []string{"sh", "-c", script, "weir"}, Environ: append(os.Environ(), "WEIR_TRAINER__ETA=7"), Grace: 50 * time.Millisecond}
	}
	failed, ok := errors.AsType[*FailedError](shell("echo eta $WEIR_TRAINER__ETA; echo no such thing >&2; exit 3").TrainRun(t.Context(), r))
	require.True(t, ok)
	require.Equal(t, "weir up ended with exit status 3", failed.How)
	require.Equal(t, "eta\nno such thing", failed.LastWords, "a variable that sets a key does not reach the run")
	require.ErrorIs(t, shell("echo write: no space left on device; exit 1").TrainRun(t.Context(), r), syscall.ENOSPC)
	before, err := readSpent(r)
	require.NoError(t, err)
	require.Positive(t, before.WallSeconds)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	require.NoError(t, shell("trap '' TERM; while :; do sleep 0.01; done").TrainRun(ctx, r))
	after, err := readSpent(r)
	require.NoError(t, err)
	require.Greater(t, after.WallSeconds, before.WallSeconds)
}
