package cli

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rl/weir/internal/tracing"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Each trajectory that a run trained on has a trace from its ticket to its step; a run that names no receiver sends nothing, whatever
// OpenTelemetry's own variables say.
func TestTheTracesOfARun(t *testing.T) {
	var mu sync.Mutex
	traces, requests := map[string]map[string]int{}, 0 // the names of the spans of each trace
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body io.Reader = q.Body
		var err error
		if q.Header.Get("Content-Encoding") == "gzip" {
			body, err = gzip.NewReader(q.Body)
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(body)
		}
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &sent)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		requests++
		for _, of := range sent.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					id := hex.EncodeToString(s.TraceId)
					if traces[id] == nil {
						traces[id] = map[string]int{}
					}
					traces[id][s.Name]++
				}
			}
		}
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	up := func(more ...string) string {
		dir := t.TempDir()
		weir(t, append([]string{
			"up", "--run.dir", dir, "--broker.listen", "127.0.0.1:0", "--trainer.steps", "1", "--trainer.batch_groups", "2",
			"--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.cold_start.steps", "1",
			"--eval.every", "0", "--eval.test_questions", "1",
		}, more...)...)
		return dir
	}
	came := func() int {
		mu.Lock()
		defer mu.Unlock()
		return requests
	}
	up()
	require.Zero(t, came())

	dir := up("--tracing.endpoint", receiver.URL)
	require.Positive(t, came())
	receiver.Close() // nothing more comes, so that what came can be read
	require.Contains(t, traces[tracing.StepTrace("demo", 1)], "training step")
	records, err := checkpoint.ReadRecords(filepath.Join(dir, "demo", "checkpoints"))
	require.NoError(t, err)
	trained := 0
	for _, rec := range records {
		for _, g := range rec.Groups {
			for _, m := range g.Used() {
				trained++
				spans := traces[tracing.TicketTrace("demo", m.ID)]
				for _, name := range []string{"ticket", "queue", "lease", "rollout", "publish", "admit", "step"} {
					require.Equal(t, 1, spans[name], "%s of %s: %v", name, m.ID, spans)
				}
				require.Positive(t, spans["turn"])
			}
		}
	}
	require.Positive(t, trained)
}
