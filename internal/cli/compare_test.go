package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/report"
)

// smallComparison has two arms that start from the same policy and are trained for some steps.
const smallComparison = `
name: small
settings:
  model: {layers: 1, hidden: 16, intermediate: 16}
  trainer: {steps: STEPS, batch_groups: 2, group_size: 2, cold_start.steps: 10, selection.drop_zero_variance: false, eta: 0}
  eval: {questions: 8, test_questions: 8, every: 1, show: 0}
arms: {grpo: {}, rloo: {trainer.advantage.name: rloo}}
seeds: {tuning: [1], testing: [11]}
deterministic: true
claims: [rloo final >= grpo final]
`

func writeComparison(t *testing.T, dir, steps string) string {
	t.Helper()
	file := filepath.Join(dir, "compare.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(smallComparison, "STEPS", steps)), 0o644))
	return file
}

// Two arms are trained from one cold start; a finished run is not run again, and a file of other settings is refused by the run's name.
func TestCompareTrainsArmsFromOneStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, runs := writeComparison(t, dir, "2"), filepath.Join(dir, "runs")
	var got struct {
		Testing struct {
			Arms []struct {
				Runs []struct {
					State  string
					Scores struct {
						Start, Tokens    float64
						ProcessorSeconds float64 `json:"processor_seconds"`
					}
				}
			}
		}
		Claims []struct{ Verdict, Why string }
	}
	require.NoError(t, json.Unmarshal([]byte(weir(t, "compare", file, "--dir", runs, "-o", "json")), &got))
	require.Len(t, got.Testing.Arms, 2)
	a, b := got.Testing.Arms[0].Runs[0], got.Testing.Arms[1].Runs[0]
	require.Equal(t, "finished", a.State)
	require.Equal(t, "finished", b.State)
	require.InDelta(t, a.Scores.Start, b.Scores.Start, 0)
	require.Positive(t, a.Scores.Tokens)
	require.Positive(t, a.Scores.ProcessorSeconds)
	require.Equal(t, "undecided", got.Claims[0].Verdict)
	before := read(t, runs, "rloo-seed-11", "metrics.jsonl")
	require.Contains(t, weir(t, "compare", file, "--dir", runs), "seeds for testing 11")
	require.Equal(t, before, read(t, runs, "rloo-seed-11", "metrics.jsonl"))
	require.Contains(t, string(read(t, runs, "report.md")), "| rloo | 1/1 |")

	complaint := failCompare(t, exitConfig, writeComparison(t, dir, "3"), "--dir", runs)
	require.Contains(t, complaint, "run rloo-seed-11 in "+filepath.Join(runs, "rloo-seed-11")+" was begun with another configuration")
	require.Contains(t, complaint, "trainer.steps: 3, and the run was begun with 2")
}

// Several files are compared in folders of their own names, and the claims of all are in one table. Faults of all files are named before a run
// is trained, as are two files of one name.
func TestCompareTakesSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	text := strings.ReplaceAll(smallComparison, "STEPS", "2")
	first, second := write("a.yaml", text), write("b.yaml", strings.ReplaceAll(text, "name: small", "name: other"))
	runs := filepath.Join(dir, "runs")
	out := weir(t, "compare", first, second, "--dir", runs, "--report")
	table := "| [small](small) | rloo final >= grpo final | undecided | of 0 seeds every run is finished; at least 2 are needed |\n" +
		"| [other](other) | rloo final >= grpo final | undecided | of 0 seeds every run is finished; at least 2 are needed |\n\n0 held, 0 not held, 2 undecided.\n"
	require.Contains(t, out, table)
	require.Contains(t, string(read(t, runs, "claims.md")), table)
	require.FileExists(t, filepath.Join(runs, "small", "report.md"))
	require.FileExists(t, filepath.Join(runs, "other", "report.md"))

	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.MkdirAll(empty, 0o755))
	require.Contains(t, failCompare(t, exitConfig, empty), empty+": neither this folder nor a folder in it has a compare.yaml")
	require.Contains(t, failCompare(t, exitConfig, first, first, "--dir", runs), "are both named small")
	wrong := write("c.yaml", strings.ReplaceAll(text, "eta: 0", "eta: -3"))
	complaint := failCompare(t, exitConfig, wrong, "nothing.yaml", "--dir", runs)
	require.Contains(t, complaint, "settings.trainer.eta: -3")
	require.Contains(t, complaint, "nothing.yaml")
}

// failCompare runs a comparison that fails with a status, and returns its error output.
func failCompare(t *testing.T, status int, args ...string) string {
	t.Helper()
	var complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), binary(t), append([]string{"compare"}, args...)...)
	c.Stderr = &complaint
	require.Error(t, c.Run())
	require.Equal(t, status, c.ProcessState.ExitCode(), complaint.String())
	return complaint.String()
}

// A comparison that is interrupted ends its run in order; the same command trains the rest of it, from its checkpoint.
func TestCompareGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "an interrupted comparison")
	dir := t.TempDir()
	file, runs := writeComparison(t, dir, "30"), filepath.Join(dir, "runs")
	c := exec.CommandContext(t.Context(), binary(t), "compare", file, "--dir", runs, "--parallel", "1")
	var complaint bytes.Buffer
	c.Stderr = &complaint
	require.NoError(t, c.Start())
	metrics := filepath.Join(runs, "grpo-seed-11", "metrics.jsonl")
	require.Eventually(t, func() bool {
		records, err := report.ReadMetrics(metrics)
		return err == nil && len(report.Collect(records, "step_done", "total/tokens", "").X) >= 3
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	var ended *exec.ExitError
	require.ErrorAs(t, c.Wait(), &ended)
	require.Equal(t, 130, ended.ExitCode(), complaint.String())
	require.Contains(t, complaint.String(), "stopped; the same command goes on")
	require.NoFileExists(t, filepath.Join(runs, "rloo-seed-11", "metrics.jsonl"))

	require.Contains(t, weir(t, "compare", file, "--dir", runs, "--parallel", "1"), "grpo  1/1")
	log := string(read(t, runs, "grpo-seed-11", "compare.log"))
	require.Contains(t, log, "goes on from")
	require.Equal(t, 1, strings.Count(log, "cold start: step 10 of 10"), "the cold start is not made twice")
}

func TestCompareNamesEveryFault(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "compare.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: x\nsettings: {trainer.etaa: 1}\narms: {a: {}, b: {trainer.eta: -1}}\nseeds: {testing: [1]}\n"), 0o644))
	complaint := failCompare(t, exitConfig, file)
	require.Contains(t, complaint, "settings.trainer.etaa: 1: unknown key; did you mean trainer.eta?")
	require.Contains(t, complaint, "arms.b.trainer.eta: -1")
	require.Contains(t, failCompare(t, exitUsage, file, "--seeds", "some"), `--seeds "some": want testing, tuning or all`)
	require.Contains(t, failCompare(t, exitConfig, "nothing.yaml"), "nothing.yaml")
}
