package verltool

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/toolserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, handler http.Handler, change func(*Config)) *Tool {
	t.Helper()
	server := httptest.NewServer(handler)
	cfg := DefaultConfig()
	cfg.URL, cfg.Backoff, cfg.Name = server.URL, time.Millisecond, "python"
	if change != nil {
		change(&cfg)
	}
	tool, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		tool.client.Close()
		server.Close()
	})
	return tool
}

// What VerlTool's server answers, in its several forms.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	half := 0.5
	for name, c := range map[string]struct {
		answer string
		want   producers.Observation
		told   string // an error that the agent is told
		away   string // the machinery's failure
	}{
		"a text":         {answer: `{"observations": ["4\n"], "dones": [false], "valids": [true], "processing_time_ms": 3.1, "queue_time_ms": 0}`, want: producers.Observation{Text: "4\n"}},
		"an object":      {answer: `{"observations": [{"obs": "4", "reward": 0.5}], "dones": [true], "valids": [true]}`, want: producers.Observation{Text: "4", Reward: &half, Done: true}},
		"other contents": {answer: `{"observations": [{"obs": ["a", 1]}], "dones": [false], "valids": [true]}`, want: producers.Observation{Text: `["a", 1]`}},
		"no tool":        {answer: `{"observations": [{"obs": "", "invalid_reason": "no valid tool found for action"}], "dones": [false], "valids": [false]}`, told: "no valid tool found"},
		"a failure":      {answer: `{"observations": [{"obs": "", "error": "Tool processing failed: x"}], "dones": [true], "valids": [false]}`, away: "Tool processing failed"},
		"too few":        {answer: `{"observations": [], "dones": [], "valids": []}`, away: "0 observations"},
		"a number":       {answer: `{"observations": [1], "dones": [false], "valids": [true]}`, away: "neither a text nor an object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }), nil)
			o, err := tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: "print(4)"})
			switch {
			case c.told != "":
				require.ErrorContains(t, err, c.told)
				require.NotErrorIs(t, err, producers.ErrUnavailable)
			case c.away != "":
				require.ErrorContains(t, err, c.away)
				require.ErrorIs(t, err, producers.ErrUnavailable)
			default:
				require.NoError(t, err)
				require.Equal(t, c.want, o)
			}
		})
	}
}

func TestTheServerIsToldOfTheEpisode(t *testing.T) {
	t.Parallel()
	var bodies []string
	tool := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(data))
		_, _ = io.WriteString(w, `{"observations": ["ok"], "dones": [false], "valids": [true]}`)
	}), func(c *Config) { c.Prefix, c.Suffix = "<python>", "</python>" })
	require.NoError(t, tool.Open(t.Context(), producers.Session{Run: "r", Episode: "e", World: json.RawMessage(`{"stdin": "3"}`)}))
	require.NoError(t, tool.Open(t.Context(), producers.Session{Run: "r", Episode: "unused"}))
	_, err := tool.Call(t.Context(), producers.Call{Run: "r", Episode: "e", Arguments: "print(4)"})
	require.NoError(t, err)
	require.NoError(t, tool.Close(t.Context(), "e"))
	require.NoError(t, tool.Close(t.Context(), "unused"), "the server knows nothing of it")
	require.Len(t, bodies, 2)
	require.JSONEq(t, `{"trajectory_ids": ["e"], "actions": ["<python>print(4)</python>"], "finish": [false], "is_last_step": [false], "extra_fields": [{"stdin": "3"}]}`, bodies[0])
	require.JSONEq(t, `{"trajectory_ids": ["e"], "actions": [""], "finish": [true], "is_last_step": [true], "extra_fields": [{"stdin": "3"}]}`, bodies[1])
	require.Empty(t, tool.fields)
}

// counter counts its calls of each session.
type counter struct {
	name         string
	open, closed []string
	counts       map[string]int
}

func (c *counter) Spec() producers.ToolSpec { return producers.ToolSpec{Name: c.name} }

func (c *counter) Open(_ context.Context, s producers.Session) error {
	if string(s.World) == `{"bad":1}` {
		return errors.New("no such world")
	}
	c.open = append(c.open, s.Episode)
	return nil
}

func (c *counter) Close(_ context.Context, episode string) error {
	c.closed = append(c.closed, episode)
	return nil
}

func (c *counter) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	switch call.Arguments {
	case "fail":
		return producers.Observation{}, errors.New("division by zero")
	case "away":
		return producers.Observation{}, producers.ErrUnavailable
	case "answer":
		answer := "42"
		return producers.Observation{Answer: &answer}, nil
	}
	c.counts[call.Episode]++
	return producers.Observation{Text: c.name + " " + call.Arguments + string(rune('0'+c.counts[call.Episode]))}, nil
}

// The server of Weir's own answers this client, and keeps a session for each of its episodes.
func TestAgainstTheServer(t *testing.T) {
	t.Parallel()
	one := &counter{name: "python", counts: map[string]int{}}
	sessions := toolserver.New(toolserver.Config{Sessions: 2, Idle: time.Hour}, []producers.Tool{one})
	tool := serve(t, sessions.VerlTool(), func(c *Config) { c.Retries = 0 })
	call := func(episode, action string) (string, error) {
		o, err := tool.Call(t.Context(), producers.Call{Episode: episode, Arguments: action})
		return o.Text, err
	}
	for _, episode := range []string{"a", "b"} {
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
		for i := range 2 {
			text, err := call(episode, "x")
			require.NoError(t, err)
			require.Equal(t, "python x"+string(rune('1'+i)), text)
		}
	}
	_, err := call("c", "x")
	require.ErrorIs(t, err, producers.ErrUnavailable, "there are as many sessions as there may be")
	require.ErrorContains(t, err, "as many sessions are open")
	text, err := call("a", "fail")
	require.NoError(t, err)
	require.Equal(t, "error: division by zero", text, "as an agent of Weir is told")
	_, err = call("a", "away")
	require.ErrorIs(t, err, producers.ErrUnavailable)
	o, err := tool.Call(t.Context(), producers.Call{Episode: "a", Arguments: "answer"})
	require.NoError(t, err)
	require.True(t, o.Done)
	require.NoError(t, tool.Close(t.Context(), "a"))
	require.Equal(t, []string{"a"}, one.closed)
	_, err = call("c", "x")
	require.NoError(t, err, "there is room again")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sessions.Run(ctx) // which ends what is left
	require.ElementsMatch(t, []string{"a", "b", "c"}, one.closed)
	require.Equal(t, []string{"a", "b", "c"}, one.open)
}

func TestActionsNameTheirTool(t *testing.T) {
	t.Parallel()
	served := []producers.Tool{&counter{name: "python", counts: map[string]int{}}, &counter{name: "search", counts: map[string]int{}}}
	sessions := toolserver.New(toolserver.Config{Sessions: 20, Idle: time.Hour}, served)
	tool := serve(t, sessions.VerlTool(), nil)
	for action, want := range map[string]string{
		"<think>a</think><search> oslo </search>": "search oslo1",
		"<python>1</python>":                      "python 11",
		`<tool_call>{"name": "search", "arguments": {"query": "oslo"}}</tool_call>`:    "search oslo1",
		`{"name": "python", "arguments": "1"}`:                                         "python 11",
		`<tool_call>{"name": "python", "arguments": {"a": "1", "b": "2"}}</tool_call>`: `python {"a": "1", "b": "2"}1`,
	} {
		o, err := tool.Call(t.Context(), producers.Call{Episode: action, Arguments: action})
		require.NoError(t, err, action)
		require.Equal(t, want, o.Text)
	}
	for _, action := range []string{"nothing", "<python>", `{"name": "other"}`} {
		_, err := tool.Call(t.Context(), producers.Call{Episode: "x", Arguments: action})
		require.ErrorContains(t, err, "no tool takes this action: there are python, search", action)
	}
	_, err := sessions.Call(t.Context(), "w", "python", "x", []byte(`{"bad":1}`))
	require.ErrorIs(t, err, producers.ErrUnavailable)
	for body, code := range map[string]int{
		`{"trajectory_ids": ["a"], "actions": []}`: 422, `{"trajectory_ids": [], "actions": []}`: 422, `[]`: 422,
		`{"trajectory_ids": [1], "actions": ["<python>1</python>"], "extra_fields": [{}, {}]}`: 422, `{"trajectory_ids": [1, 2], "actions": ["<python>1</python>", "no"]}`: 200,
	} {
		w := httptest.NewRecorder()
		sessions.VerlTool().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/get_observation", strings.NewReader(body)))
		require.Equal(t, code, w.Code, body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sessions.Run(ctx)
}

func TestType(t *testing.T) {
	t.Parallel()
	_, err := Type().Open(t.Context(), tools.Opening{Name: "code", Config: Type().Config()})
	require.ErrorContains(t, err, "url:")
	cfg := Type().Config().(*Config)
	cfg.URL = "http://127.0.0.1:1/get_observation"
	tool, err := Type().Open(t.Context(), tools.Opening{Name: "code", Config: cfg})
	require.NoError(t, err)
	require.Equal(t, "code", tool.Spec().Name, "the section's name, where none is set")
}
