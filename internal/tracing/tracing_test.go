package tracing_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/internal/tracing"
	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver takes OTLP over HTTP, as a collector does.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
	names map[string]bool // of services
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{names: map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
			http.Error(w, "no traces", http.StatusNotFound)
			return
		}
		var body io.Reader = q.Body
		if q.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(q.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = unzipped
		}
		data, err := io.ReadAll(body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &sent)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, of := range sent.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					r.names[a.Value.GetStringValue()] = true
				}
			}
			for _, scope := range of.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// only is the one span of a name in a trace.
func (r *receiver) only(t *testing.T, trace, name string) *otlp.Span {
	t.Helper()
	var found []*otlp.Span
	for _, s := range r.spans {
		if s.Name == name && hex.EncodeToString(s.TraceId) == trace {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, name)
	return found[0]
}

func open(t *testing.T, endpoint, role string, sample float64, log *slog.Logger) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.Open(t.Context(), telemetry.TracingConfig{Endpoint: endpoint, Sample: sample}, tracing.Role{Name: role, Worker: role + "-1", Run: "demo", Version: "v"}, log)
	require.NoError(t, err)
	return tracer
}

// example is a ticket whose trajectory a step used: a turn with a call, and one without.
func example(id string) (tracing.Rollout, tracing.Ending) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 3, 4, s, 0, time.UTC) }
	ticket := &schemas.Ticket{Run: "demo", ID: id, Group: "g1-a0", Task: "library", IssuedAt: at(0), Prompt: schemas.Prompt{Source: "1-hop"}}
	done := &schemas.Trajectory{Run: "demo", ID: id, Group: "g1-a0", Reward: 1, Stop: schemas.StopAnswer, StartedAt: at(2), FinishedAt: at(8)}
	rollout := tracing.Rollout{
		Ticket: ticket, Delivery: 1, Producer: "p", Leased: at(2), Ended: at(9), Publishing: at(8), Stored: at(9), Trajectory: done,
		Turns: []tracing.Turn{
			{Began: at(2), Sampled: at(4), Tokens: 5, Calls: []tracing.Call{{Tool: "search", Began: at(4), Took: 2 * time.Second}}},
			{Began: at(6), Sampled: at(8), Tokens: 3},
		},
	}
	return rollout, tracing.Ending{Trajectory: done, Issued: at(0), Came: at(10), Batched: at(15), Ended: at(20), Step: 7}
}

// A ticket's trace is whole although two processes sent it and told each other nothing: every span but the first has its parent in it,
// and lies within it.
func TestATicketsTraceGoesFromItsIssueToItsStep(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	rollout, ending := example("g1-a0-3")
	producer, trainer := open(t, r.URL, "producer", 1, slog.New(slog.DiscardHandler)), open(t, r.URL+"/v1/traces", "trainer", 1, slog.New(slog.DiscardHandler))
	producer.Rollout(rollout)
	trainer.Ending(ending)
	trainer.Step(7, ending.Ended, 6*time.Second, tracing.Stage{Name: "wait", Took: time.Second}, tracing.Stage{Name: "update", Took: 4 * time.Second})
	require.NoError(t, producer.Close(t.Context()))
	require.NoError(t, trainer.Close(t.Context()))
	require.Equal(t, map[string]bool{"weir-producer": true, "weir-trainer": true}, r.names)

	trace := tracing.TicketTrace("demo", "g1-a0-3")
	root := r.only(t, trace, "ticket")
	require.Empty(t, root.ParentSpanId)
	require.EqualValues(t, 20*time.Second, root.EndTimeUnixNano-root.StartTimeUnixNano)
	byID := map[string]*otlp.Span{}
	for _, s := range r.spans {
		byID[string(s.SpanId)] = s
	}
	require.Len(t, byID, len(r.spans), "no two spans have one id")
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) != trace || s == root {
			continue
		}
		parent := byID[string(s.ParentSpanId)]
		require.NotNil(t, parent, s.Name)
		require.Equal(t, s.TraceId, parent.TraceId, s.Name)
		require.LessOrEqual(t, parent.StartTimeUnixNano, s.StartTimeUnixNano, s.Name)
		require.GreaterOrEqual(t, parent.EndTimeUnixNano, s.EndTimeUnixNano, s.Name)
	}
	for name, seconds := range map[string]int{"queue": 2, "lease": 7, "rollout": 6, "tool search": 2, "publish": 1, "admit": 5, "step": 5} {
		s := r.only(t, trace, name)
		require.EqualValues(t, time.Duration(seconds)*time.Second, s.EndTimeUnixNano-s.StartTimeUnixNano, name)
	}
	links := r.only(t, trace, "step").Links
	require.Len(t, links, 1)
	step := r.only(t, tracing.StepTrace("demo", 7), "training step")
	require.Equal(t, step.SpanId, links[0].SpanId, "a ticket leads to the step that used it")
	require.Equal(t, r.only(t, tracing.StepTrace("demo", 7), "update").ParentSpanId, step.SpanId)
}

func TestARefusedTrajectorySaysWhy(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	_, ending := example("g1-a0-4")
	ending.Batched, ending.Reason = time.Time{}, string(schemas.ReasonStale)
	trainer := open(t, r.URL, "trainer", 1, slog.New(slog.DiscardHandler))
	trainer.Ending(ending)
	require.NoError(t, trainer.Close(t.Context()))
	require.Len(t, r.spans, 2, "the ticket, and its wait")
	for _, a := range r.only(t, tracing.TicketTrace("demo", "g1-a0-4"), "ticket").Attributes {
		if a.Key == "weir.fate" {
			require.Equal(t, "stale", a.Value.GetStringValue())
			return
		}
	}
	t.Fatal("no fate")
}

// Every role picks the same tickets, so that no trace is half there.
func TestEveryRoleTracesTheSameTickets(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	producer, trainer := open(t, r.URL, "producer", 0.5, slog.New(slog.DiscardHandler)), open(t, r.URL, "trainer", 0.5, slog.New(slog.DiscardHandler))
	for i := range 64 {
		rollout, ending := example("g1-a0-" + string(rune('0'+i)))
		producer.Rollout(rollout)
		trainer.Ending(ending)
	}
	require.NoError(t, producer.Close(t.Context()))
	require.NoError(t, trainer.Close(t.Context()))
	spans := map[string]int{}
	for _, s := range r.spans {
		spans[string(s.TraceId)]++
	}
	require.Greater(t, len(spans), 8)
	require.Less(t, len(spans), 56)
	for _, n := range spans {
		require.Equal(t, 12, n, "ticket, queue, lease, rollout, two turns with their tokens, a call, publish, admit, step")
	}
}

func TestNothingIsTracedWhereNoReceiverIsNamed(t *testing.T) {
	t.Parallel()
	tracer := open(t, "", "producer", 1, slog.New(slog.DiscardHandler))
	require.Nil(t, tracer)
	rollout, ending := example("g1-a0-0")
	tracer.Rollout(rollout)
	tracer.Ending(ending)
	tracer.Step(1, time.Now(), time.Second)
	require.NoError(t, tracer.Close(t.Context()))
}

// A receiver that takes no spans costs the run nothing but a line in its log.
func TestAReceiverThatRefusesIsToldOfOnce(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var told bytes.Buffer
	tracer := open(t, s.URL, "producer", 1, slog.New(slog.NewTextHandler(&told, nil)))
	for range 2 {
		rollout, _ := example("g1-a0-0")
		tracer.Rollout(rollout)
	}
	require.NoError(t, tracer.Close(context.WithoutCancel(t.Context())))
	require.Equal(t, 1, bytes.Count(told.Bytes(), []byte("spans are lost")), told.String())
	require.Contains(t, told.String(), s.URL)
}
