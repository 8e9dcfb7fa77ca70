package view

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
)

// numbersOf is a run whose folder has the numbers of so many steps.
func numbersOf(t testing.TB, steps int) (run *shownRun, addStep func(step int)) {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, runfolder.MetricsFile))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	addStep = func(step int) {
		_, err := fmt.Fprintf(out, `{"at":"2026-01-02T03:04:05Z","type":"step_done","step":%d,"policy_version":%d,"metrics":{"reward/mean":%g,"reward/std":0.1}}`+"\n",
			step, step, min(1, float64(step)/100))
		require.NoError(t, err)
	}
	for step := range steps {
		addStep(step + 1)
	}
	return openRun(Run{Run: runfolder.Run{Name: "demo", Dir: dir}}), addStep
}

// The overview of a run with nothing new has no record read again; a new step is seen at the next request.
func TestTheOverviewReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	f, addStep := numbersOf(t, 200)
	defer f.folder.Close()
	overview := func() *Overview {
		require.NoError(t, f.folder.Refresh())
		return f.readOverview(t.Context(), time.Now())
	}
	require.Contains(t, overview().Summary.Verdict.Text, "in 200 steps")
	before := f.judged.steps
	f.judged.verdict.Text = "kept"
	require.Equal(t, "kept", overview().Summary.Verdict.Text)
	require.Same(t, &before[0], &f.judged.steps[0])
	addStep(201)
	after := overview()
	require.Contains(t, after.Summary.Verdict.Text, "in 201 steps")
	require.Equal(t, report.Judge(f.courseOf(after)), after.Summary.Verdict)
}

// A file of numbers that was written anew is read anew.
func TestTheOverviewSeesNumbersThatWereWrittenAnew(t *testing.T) {
	t.Parallel()
	f, _ := numbersOf(t, 50)
	defer f.folder.Close()
	require.NoError(t, f.folder.Refresh())
	require.Contains(t, f.readOverview(t.Context(), time.Now()).Summary.Verdict.Text, "in 50 steps")
	require.NoError(t, os.WriteFile(filepath.Join(f.Dir, runfolder.MetricsFile), nil, 0o600))
	require.NoError(t, f.folder.Refresh())
	require.Contains(t, f.readOverview(t.Context(), time.Now()).Summary.Verdict.Text, "no step is done yet")
}

// BenchmarkOverview is a request for the overview of a run of 20,000 steps with nothing new.
func BenchmarkOverview(b *testing.B) {
	f, _ := numbersOf(b, 20_000)
	defer f.folder.Close()
	require.NoError(b, f.folder.Refresh())
	f.readOverview(b.Context(), time.Now())
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, f.folder.Refresh())
		f.readOverview(b.Context(), time.Now())
	}
}
