package view_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// overviewKeys are what the page Overview asks for.
const overviewKeys = "reward/mean,eval/exact_match,staleness/mean,staleness/max,policy/entropy,time/wait,time/update,rate/trajectories,rejected/,k/"

// BenchmarkAnOpenPage is the processor time, of all threads and of whoever asks among them, that one look of an open page at the
// overview takes: it looks every 5 seconds, while another step of 128 trajectories comes between two looks.
func BenchmarkAnOpenPage(b *testing.B) {
	for _, steps := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%d_steps", steps), func(b *testing.B) {
			dir := b.TempDir()
			require.NoError(b, os.MkdirAll(filepath.Join(dir, "checkpoints"), 0o755))
			record, numbers := growing(b, filepath.Join(dir, "checkpoints", checkpoint.RecordFile)), growing(b, filepath.Join(dir, "metrics.jsonl"))
			step := 0
			add := func() {
				step++
				r, rec := checkpoint.Record{Step: int64(step)}, report.Record{At: time.Unix(int64(step), 0), Type: "step_done", Step: int64(step), PolicyVersion: int64(step), Metrics: map[string]float64{"reward/mean": 0.5}}
				for g := range 16 {
					cursor := uint64(step*16 + g)
					group := checkpoint.RecordGroup{Group: batch.GroupID(cursor, 0), Size: 8}
					for s := range 8 {
						group.Members = append(group.Members, checkpoint.RecordMember{ID: batch.TicketID(cursor, 0, s), Sequence: cursor*8 + uint64(s) + 1, Reward: 1})
					}
					r.Groups = append(r.Groups, group)
				}
				for k := range 100 {
					rec.Metrics[fmt.Sprintf("k/%d", k)] = float64(k * step)
				}
				require.NoError(b, record.Encode(r))
				require.NoError(b, numbers.Encode(rec))
			}
			for range steps {
				add()
			}
			s, err := view.Listen(view.Config{Listen: "127.0.0.1:0"}, view.Deps{Runs: []view.Run{{Run: runfolder.Run{Name: "demo", Dir: dir}}}}, false)
			require.NoError(b, err)
			go func() { _ = s.Run(b.Context()) }() // it ends with the benchmark
			base, _, _ := strings.Cut(s.URL(), "#")
			looks(b, add, base, "runs", "runs/demo/overview", "runs/demo/series?keys="+overviewKeys)
		})
	}
}

// BenchmarkTheOpenPageOfStreams is the same for the page Streams, which looks every 5 seconds at a broker that has as many events as it
// reads, an event more between two looks. The broker is in this process, and its time is counted too.
func BenchmarkTheOpenPageOfStreams(b *testing.B) {
	run, err := streamtest.Conn(b).Open(b.Context(), "demo", streams.DefaultTopology())
	require.NoError(b, err)
	emit := func() {
		require.NoError(b, run.Emit(b.Context(), &schemas.Event{Run: "demo", Type: schemas.EventStepDone, At: time.Now(), Role: "trainer", Worker: "t", Metrics: map[string]float64{"reward/mean": 1}}))
	}
	for range 3100 {
		emit()
	}
	s, err := view.Listen(view.Config{Listen: "127.0.0.1:0"}, view.Deps{Runs: []view.Run{{Run: runfolder.Run{Name: "demo", Connect: func(context.Context) (*streams.Run, func(), error) { return run, func() {}, nil }}}}}, false)
	require.NoError(b, err)
	go func() { _ = s.Run(b.Context()) }() // it ends with the benchmark
	base, _, _ := strings.Cut(s.URL(), "#")
	b.Run("streams", func(b *testing.B) { looks(b, emit, base, "runs/demo/streams") })
	b.Run("overview", func(b *testing.B) { looks(b, emit, base, "runs", "runs/demo/overview") })
}

// looks asks the page's server these questions again and again, and reports what each round takes.
func looks(b *testing.B, between func(), base string, paths ...string) {
	b.Helper()
	look := func() {
		for _, path := range paths {
			res, err := http.Get(base + "api/" + path) //nolint:noctx // it is answered at once
			require.NoError(b, err)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(b, err)
			require.NoError(b, res.Body.Close())
			require.Equal(b, http.StatusOK, res.StatusCode)
		}
	}
	look()
	spent := time.Duration(0)
	for b.Loop() {
		between()
		began := processorTime(b)
		look()
		spent += processorTime(b) - began
	}
	each := spent.Seconds() / float64(b.N)
	b.ReportMetric(1000*each, "cpu-ms/look")
	b.ReportMetric(100*each/5, "%-of-a-core")
}

func growing(b *testing.B, path string) *json.Encoder {
	b.Helper()
	f, err := os.Create(path)
	require.NoError(b, err)
	b.Cleanup(func() { _ = f.Close() }) // the benchmark is over
	return json.NewEncoder(f)
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
