package runfolder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Finding 1 of the ninth reader: a page that was open while a run's folder was removed and made again mixed the numbers, steps and entries of
// both runs. A file system gives the number of a removed file to the next, and the new run may be longer than the old.
func TestAnOpenPageShowsTheRunThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := Open(Run{Name: "r", Dir: dir})
	defer open.Close()
	makeRun := func(began time.Time, steps int) {
		require.NoError(t, os.RemoveAll(dir))
		archived := filepath.Join(dir, CheckpointsFolder, archive.Folder)
		require.NoError(t, os.MkdirAll(archived, 0o755))
		var lines []report.Record
		var record []checkpoint.Record
		var entries []archive.Entry
		for s := range steps {
			at := began.Add(time.Duration(s) * time.Minute)
			lines = append(lines, report.Record{At: at, Type: "step_done", Step: int64(s + 1), Metrics: map[string]float64{"x": float64(began.Unix() + int64(s))}})
			id := fmt.Sprintf("g%06d-a0-0", s)
			record = append(record, checkpoint.Record{Step: int64(s + 1), Created: began, Groups: []checkpoint.RecordGroup{{
				Group: fmt.Sprintf("g%06d-a0", s), Size: 1, Members: []checkpoint.RecordMember{{ID: id, Sequence: uint64(s + 1), Reward: float64(began.Unix())}},
			}}})
			entries = append(entries, archive.Entry{ID: id, Sequence: uint64(s + 1), Step: int64(s + 1), Fate: archive.FateTrained, Ended: at.UnixMilli()})
		}
		writeLines(t, filepath.Join(dir, MetricsFile), lines...)
		writeLines(t, filepath.Join(dir, CheckpointsFolder, checkpoint.RecordFile), record...)
		writeLines(t, filepath.Join(archived, "000001.jsonl"), entries...)
	}
	same := func() {
		t.Helper()
		fresh := Open(Run{Name: "r", Dir: dir})
		defer fresh.Close()
		require.NoError(t, open.Refresh())
		require.NoError(t, fresh.Refresh())
		require.Equal(t, fresh.Metrics.records, open.Metrics.records)
		every := Query{Step: -1, Limit: 100}
		want, have := fresh.Steps.List(every, 1), open.Steps.List(every, 1)
		fresh.Archive.AddFacts(want.Rows)
		open.Archive.AddFacts(have.Rows)
		require.Equal(t, want.Rows, have.Rows)
		require.Equal(t, fresh.Archive.all, open.Archive.all)
		require.Equal(t, fresh.Archive.at, open.Archive.at)
	}
	for i, steps := range []int{5, 9, 9, 20, 3} {
		makeRun(time.Unix(1_800_000_000+int64(i)*86400, 0).UTC(), steps)
		same()
	}
	require.NoError(t, os.RemoveAll(dir))
	same() // an empty page, until the run is there again
	require.NoError(t, os.Mkdir(dir, 0o755))
}

// A low finding of the eighth reader: the folder that a killed fork left was shown as a run.
func TestTheHalfOfAForkIsNoRun(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for _, name := range []string{"b", "a", ".c.tmp-123", "none"} {
		require.NoError(t, os.MkdirAll(filepath.Join(parent, name, CheckpointsFolder), 0o755))
	}
	require.NoError(t, os.Remove(filepath.Join(parent, "none", CheckpointsFolder)))
	names, err := List(parent)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names)
}
