package toolworker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamtest.ClientLeak()) }

// counter is a tool that adds up what it is called with, for each session.
type counter struct {
	mu       sync.Mutex
	sums     map[string]int
	opened   []producers.Session
	acts     []string
	calls    []producers.Call
	call     func(context.Context, producers.Call) (producers.Observation, error)
	fail     error // of Open
	closing  func()
	openings func(producers.Session)
}

func (c *counter) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "count"} }

func (c *counter) Open(_ context.Context, s producers.Session) error {
	if c.openings != nil {
		c.openings(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acts = append(c.acts, "open "+s.Episode)
	if c.fail != nil {
		return c.fail
	}
	if c.sums == nil {
		c.sums = map[string]int{}
	}
	if _, open := c.sums[s.Episode]; open {
		return fmt.Errorf("%s is open", s.Episode)
	}
	c.sums[s.Episode], c.opened = 0, append(c.opened, s)
	return nil
}

func (c *counter) set(fail error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = fail
}

func (c *counter) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	if c.call != nil {
		return c.call(ctx, call)
	}
	return c.add(call)
}

func (c *counter) add(call producers.Call) (producers.Observation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.sums[call.Episode]; !open {
		return producers.Observation{}, fmt.Errorf("%w: %s is not open", producers.ErrUnavailable, call.Episode)
	}
	c.sums[call.Episode]++
	return producers.Observation{Text: fmt.Sprint(c.sums[call.Episode])}, nil
}

func (c *counter) Close(_ context.Context, episode string) error {
	if c.closing != nil {
		c.closing()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acts = append(c.acts, "close "+episode)
	delete(c.sums, episode)
	return nil
}

func (c *counter) did() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.acts...)
}

func (c *counter) called() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// field is a broker with the run "test", on which workers and callers are.
type field struct {
	t      *testing.T
	config broker.Config
	broker *broker.Broker
}

func newField(t *testing.T) *field {
	t.Helper()
	f := &field{t: t, config: streamtest.Config(t)}
	f.config.Listen = streamtest.FreeAddress(t)
	f.broker = streamtest.StartIn(t, f.config)
	streamtest.Open(t, f.connect())
	return f
}

// connect is another process's connection.
func (f *field) connect() *streams.Conn {
	f.t.Helper()
	return streamtest.Connect(f.t, streams.ConnectConfig{URL: f.broker.URL()})
}

func (f *field) attach() *streams.Run {
	f.t.Helper()
	run, err := f.connect().Attach(f.t.Context(), "test")
	require.NoError(f.t, err)
	return run
}

// worker is a worker that runs until stop.
type worker struct {
	name     string
	run      *streams.Run
	stop     context.CancelFunc
	ended    chan error
	registry *prometheus.Registry
}

func (f *field) worker(name string, cfg func(*toolworker.Config), tools ...producers.Tool) *worker {
	f.t.Helper()
	w := &worker{name: name, run: f.attach(), ended: make(chan error, 1), registry: prometheus.NewRegistry()}
	config := toolworker.DefaultConfig()
	config.Name, config.RetryAfter, config.Grace = name, time.Millisecond, time.Millisecond
	if cfg != nil {
		cfg(&config)
	}
	metrics, err := toolworker.NewMetrics(w.registry)
	require.NoError(f.t, err)
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	ready := make(chan struct{})
	go func() {
		w.ended <- toolworker.Run(ctx, config, toolworker.Deps{
			Stream: w.run, Tools: map[string][]producers.Tool{"task": tools}, Metrics: metrics, Ready: func(error) { close(ready) },
		})
	}()
	f.t.Cleanup(func() {
		stop()
		select {
		case <-w.ended: //nolint:errcheck // tests look at how it ended where that matters
		case <-time.After(2 * time.Minute):
			f.t.Error("the worker did not end")
		}
	})
	<-ready
	return w
}

func (w *worker) drained(t *testing.T) {
	t.Helper()
	w.stop()
	select {
	case err := <-w.ended:
		require.NoError(t, err)
		w.ended <- nil // for the cleanup
	case <-time.After(2 * time.Minute):
		t.Fatal("the worker did not drain")
	}
}

// value is that of a metric, with its labels' values.
func (w *worker) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	all, err := w.registry.Gather()
	require.NoError(t, err)
	for _, family := range all {
		if family.GetName() != name {
			continue
		}
	metric:
		for _, m := range family.GetMetric() {
			for i, l := range m.GetLabel() {
				if i < len(labels) && l.GetValue() != labels[i] {
					continue metric
				}
			}
			if m.GetGauge() != nil {
				return m.GetGauge().GetValue()
			}
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

// caller is a producer's side: its tools as placed on workers.
func (f *field) caller(options toolworker.ClientOptions, tools ...producers.Tool) []producers.Tool {
	f.t.Helper()
	if options.Again == 0 {
		options.Again = 200 * time.Millisecond
	}
	client := toolworker.NewClient(f.attach(), options)
	f.t.Cleanup(client.Close)
	link := new(toolworker.Link)
	link.Attach(client)
	var placed []producers.Tool
	for _, tool := range tools {
		placed = append(placed, link.Place(tool))
	}
	return placed
}

func open(t *testing.T, tool producers.Tool, episode string) {
	t.Helper()
	require.NoError(t, tool.(producers.SessionTool).Open(t.Context(), told(episode)))
}

func told(episode string) producers.Session {
	return producers.Session{Run: "test", Episode: episode, Task: "task", Source: "task/easy", Seed: 7, World: []byte(`{"x":1}`)}
}

func call(t *testing.T, tool producers.Tool, episode string) string {
	t.Helper()
	o, err := tool.Call(t.Context(), producers.Call{Arguments: "x", Run: "test", Episode: episode, Seed: 7})
	if err != nil {
		t.Errorf("call of episode %s: %v", episode, err) // calls beside the test end here too
	}
	return o.Text
}

func end(t *testing.T, tool producers.Tool, episode string) {
	t.Helper()
	require.NoError(t, tool.(producers.SessionTool).Close(t.Context(), episode))
}

// raw asks a worker with a message of the test's own.
func (f *field) raw(nc *nats.Conn, subject string, req *schemas.ToolRequest) *schemas.ToolReply {
	f.t.Helper()
	data, err := schemas.Marshal(req)
	require.NoError(f.t, err)
	return f.bytes(nc, subject, data)
}

func (f *field) bytes(nc *nats.Conn, subject string, data []byte) *schemas.ToolReply {
	f.t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	require.NoError(f.t, err)
	defer sub.Unsubscribe() //nolint:errcheck // the test ends
	require.NoError(f.t, nc.PublishRequest(subject, inbox, data))
	for {
		m, err := sub.NextMsg(time.Minute)
		require.NoError(f.t, err)
		r := new(schemas.ToolReply)
		require.NoError(f.t, schemas.Unmarshal(m.Data, r))
		require.NoError(f.t, r.Validate())
		if r.Done {
			return r
		}
	}
}

func opening(name, by string) *schemas.ToolRequest {
	return &schemas.ToolRequest{Run: "test", Session: name, Opening: by, Op: schemas.ToolOpOpen, Task: "task"}
}

func asking(name, by string, sequence, answered int) *schemas.ToolRequest {
	return &schemas.ToolRequest{Run: "test", Session: name, Opening: by, Op: schemas.ToolOpCall, Sequence: sequence, Answered: answered, Tool: "count"}
}

// eventually waits for a state.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 2*time.Minute, 10*time.Millisecond, what)
}

// restart starts the broker again on the same store and port.
func (f *field) restart() {
	f.t.Helper()
	f.broker = streamtest.StartIn(f.t, f.config)
}

// answerWith answers every request with the same reply; nil is bytes that are no message.
func answerWith(nc *nats.Conn, reply *atomic.Pointer[schemas.ToolReply]) nats.MsgHandler {
	return func(m *nats.Msg) {
		data := []byte("junk")
		if r := reply.Load(); r != nil {
			data, _ = schemas.Marshal(r) // it is a message
		}
		_ = nc.Publish(m.Reply, data)
	}
}
