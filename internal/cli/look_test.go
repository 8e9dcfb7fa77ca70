package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
)

func TestTheRateOfAStreamIsWhatWasStoredSinceTheLookBefore(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	look := func(after time.Duration, last uint64) *runfolder.Streams {
		return &runfolder.Streams{At: at.Add(after), Streams: []runfolder.StreamNow{{Name: "TICKETS", Messages: 2, Bytes: 1500, MaxBytes: 2e9, Last: last, Age: 61}}}
	}
	first := newStreamsAnswer("demo", true, look(0, 10), nil)
	require.Nil(t, first.Streams[0].Rate)
	second := newStreamsAnswer("demo", true, look(2*time.Second, 15), first)
	require.InDelta(t, 2.5, *second.Streams[0].Rate, 1e-9)
	anew := newStreamsAnswer("demo", true, look(4*time.Second, 3), second)
	require.Nil(t, anew.Streams[0].Rate, "the stream was made again")
	var out bytes.Buffer
	require.NoError(t, second.printStreams(&out))
	require.Regexp(t, `TICKETS │ +2 │ - +│ 1\.5 kB │ 2\.0 GB +│ 1m1s +│ 2\.5`, out.String())
}

func TestWorkersSayHowFarBehindTheyAre(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	newest, old := int64(9), int64(7)
	seen := &runfolder.Streams{At: at, Newest: &newest, Workers: []runfolder.Worker{
		{Role: "inference", Name: "a", State: runfolder.WorkerHere, Since: at.Add(-time.Minute), Heard: at, Version: &old},
		{Role: "producer", Name: "b", State: runfolder.WorkerHere, Since: at, Heard: at},
		{Role: "producer", Name: "c", State: runfolder.WorkerLeft, Since: at, Heard: at},
	}}
	now := newWorkersAnswer("demo", true, seen, false)
	require.Len(t, now.Workers, 2)
	require.EqualValues(t, 2, *now.Workers[0].Behind)
	require.Nil(t, now.Workers[1].Behind)
	require.Equal(t, 1, now.Left)
	require.Len(t, newWorkersAnswer("demo", true, seen, true).Workers, 3)
	var out bytes.Buffer
	require.NoError(t, now.printWorkers(&out, 80))
	require.Contains(t, out.String(), "1 have left: weir workers --all lists them")
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80)
	}
}

// Where the log and a live view have one terminal, the log's lines stand above the view and are not drawn over.
func TestTheLogGoesAboveTheLiveView(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	shared := &screen{to: &out}
	_, err := shared.Write([]byte("before\n"))
	require.NoError(t, err)
	progress := report.NewProgress(&out, true, 3, 4, time.Now)
	progress.Phase("learning", "")
	shared.printAbove(progress.Note)
	_, err = shared.Write([]byte("a warning\n"))
	require.NoError(t, err)
	shared.printAbove(nil)
	_, err = shared.Write([]byte("after\n"))
	require.NoError(t, err)
	require.Equal(t, "before\n\x1b[2Klearning\n\x1b[J\x1b[1A\x1b[Ja warning\n\x1b[2Klearning\n\x1b[Jafter\n", out.String())
}

func TestEveryCommandOfTheTableSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	all := Reference(builtin.Doors())
	require.Greater(t, len(all), 30)
	seen := map[string]bool{}
	for _, c := range all {
		require.NotEmpty(t, c.Short, c.Path)
		require.False(t, seen[c.Path], c.Path)
		seen[c.Path] = true
		for _, f := range c.Flags {
			require.NotEmpty(t, f.Meaning, "%s %s", c.Path, f.Name)
			require.NotContains(t, f.Name, ".", "%s: a key is no flag of the command's own", c.Path)
		}
	}
	for _, path := range []string{"weir up", "weir trainer", "weir audit", "weir healthcheck", "weir doctor", "weir tool", "weir streams", "weir workers"} {
		require.True(t, seen[path], path)
	}
}
