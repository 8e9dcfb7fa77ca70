package view

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// ask is a question to a server's API.
func ask(t *testing.T, s *Server, method, path, token, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.listener.Addr().String()+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	data, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	out := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &out), "%s", data)
	return res.StatusCode, out
}

// start runs a server until the test ends.
func start(t *testing.T, runs ...Run) *Server {
	t.Helper()
	s, err := Listen(Config{Listen: "127.0.0.1:0"}, Deps{Runs: runs}, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// A live run without its folder: the page tells what the broker does, and an operator's acts reach the run's control and its events.
func TestALiveRunIsToldAndOperated(t *testing.T) {
	t.Parallel()
	run, err := streamtest.Conn(t).Open(t.Context(), "demo", streams.DefaultTopology())
	require.NoError(t, err)
	s := start(t, Run{
		Run: runfolder.Run{Name: "demo", Connect: func(context.Context) (*streams.Run, func(), error) { return run, func() {}, nil }},
		Known: func() *operate.Known {
			return &operate.Known{Tasks: []string{"code", "math"}, MaxTokens: 4096, MaxSegments: 8}
		},
	})

	status, out := ask(t, s, "POST", "/api/runs/demo/control", s.token, `{"paused":true}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "no trainer has begun")

	require.NoError(t, run.UpdateControl(t.Context(), func(*schemas.Control) *schemas.Control {
		return &schemas.Control{Run: "demo", Eta: 4, Depth: 4, At: time.Now()}
	}))
	require.NoError(t, run.Emit(t.Context(), &schemas.Event{Run: "demo", Type: schemas.EventWorkerJoined, At: time.Now(), Role: "producer", Worker: "p-1"}))
	require.NoError(t, run.Emit(t.Context(), &schemas.Event{
		Run: "demo", Type: schemas.EventVersionApplied, At: time.Now(), Role: "inference", Worker: "i-1", PolicyVersion: 3, Metrics: map[string]float64{"weights_lag_seconds": 0.25},
	}))

	for name, c := range map[string]struct {
		token, body string
		want        int
		why         string
	}{
		"without a token":     {"", `{"paused":true}`, 401, "token"},
		"nothing":             {s.token, `{}`, 400, "nothing is to be changed"},
		"an unknown field":    {s.token, `{"pause":true}`, 400, "unknown field"},
		"no JSON":             {s.token, `paused`, 400, "read what was sent"},
		"two values":          {s.token, `{"paused":true} {}`, 400, "more than one value"},
		"a bound out of line": {s.token, `{"eta":-1}`, 400, "eta: -1"},
		"limits, each fault":  {s.token, `{"limits":{"max_turns":-1,"timeout":"soon"}}`, 400, "limits.timeout: \"soon\": want a duration, such as 90s or 2m\nlimits.max_turns: -1: must be between 0"},
		"an unknown task":     {s.token, `{"limits":{"task":"maths","max_turns":1}}`, 400, `limits.task: "maths": the run has the tasks code, math`},
		"too long a sequence": {s.token, `{"limits":{"max_tokens":4097,"max_segments":9}}`, 400, "limits.max_tokens: 4097: must not exceed the longest sequence of the policy, 4096\nlimits.max_segments: 9: must not exceed trainer.limits.max_segments, 8"},
		"no limit":            {s.token, `{"limits":{"task":"math"}}`, 400, "limits: nothing is to be changed"},
		"a wrong limit":       {s.token, `{"limits":{"max_turn":1}}`, 400, "unknown field"},
		"far too much":        {s.token, `{"paused":` + strings.Repeat(" ", maxBody) + `true}`, 400, "too large"},
	} {
		status, out := ask(t, s, "POST", "/api/runs/demo/control", c.token, c.body)
		require.Equal(t, c.want, status, name)
		require.Contains(t, out["error"], c.why, name)
	}

	status, out = ask(t, s, "POST", "/api/runs/demo/control", s.token, `{"paused":true,"eta":6}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []any{"paused: true, before false", "eta: 6, before 4"}, out["changes"])
	control, err := run.Control(t.Context())
	require.NoError(t, err)
	require.True(t, control.Paused)
	require.Equal(t, 6, control.Eta)
	status, out = ask(t, s, "POST", "/api/runs/demo/control", s.token, `{"limits":{"task":"math","max_tokens":4096,"timeout":"90s"}}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []any{"limits.math.max_tokens: 4096, before configured", "limits.math.timeout: 1m30s, before configured"}, out["changes"])
	control, err = run.Control(t.Context())
	require.NoError(t, err)
	require.Equal(t, []schemas.Limit{{Task: "math", Key: "max_tokens", Value: 4096}, {Task: "math", Key: "timeout", Value: 90e9}}, control.Limits)

	status, out = ask(t, s, "GET", "/api/runs/demo/streams", "", "")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, out, "down")
	require.Equal(t, true, out["control"].(map[string]any)["paused"])
	require.Equal(t, []any{"code", "math"}, out["tasks"])
	require.Contains(t, out["control"].(map[string]any)["limits"], map[string]any{"task": "math", "key": "timeout", "value": "1m30s"})
	var names []any
	for _, x := range out["streams"].([]any) {
		names = append(names, x.(map[string]any)["name"])
	}
	require.Equal(t, []any{"TICKETS", "TRAJECTORIES", "REJECTED", "EVENTS", "JOURNAL", "CONTROL", "WEIGHTS", "SHARDS"}, names)
	newest := out["events"].([]any)[0].(map[string]any)
	require.Equal(t, "control", newest["type"])
	require.Contains(t, newest["message"], "limits.math.timeout: 1m30s")
	require.Contains(t, out["events"].([]any)[1].(map[string]any)["message"], "paused: true")
	applied := slices.ContainsFunc(out["events"].([]any), func(e any) bool {
		return e.(map[string]any)["message"] == "version 3 by i-1, 250 ms after it was published"
	})
	require.True(t, applied, "an event has its numbers: %v", out["events"])
	workers := out["workers"].([]any)
	require.Len(t, workers, 2, "an operator is no worker")
	require.InDelta(t, 3, workers[0].(map[string]any)["version"], 0)

	status, out = ask(t, s, "GET", "/api/runs/demo/overview", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "paused", out["summary"].(map[string]any)["state"])
}

func TestARunWithoutABrokerSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t, Run{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}})
	status, out := ask(t, s, "GET", "/api/runs/demo/streams", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, out["down"], "no broker")
	status, out = ask(t, s, "POST", "/api/runs/demo/control", s.token, `{"paused":true}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, out["error"], "not up")
	status, out = ask(t, s, "GET", "/api/runs/demo/overview", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "empty", out["summary"].(map[string]any)["state"])
}

func TestBadQuestionsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	s := start(t, Run{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}})
	for path, c := range map[string]struct {
		want int
		why  string
	}{
		"trajectories?limit=0":            {400, "limit"},
		"trajectories?limit=1000000":      {400, "limit"},
		"trajectories?fate=eaten":         {400, "fate"},
		"trajectories?sort=beauty":        {400, "sort"},
		"trajectories/g000000-a0-0":       {404, "no trajectory"},
		"trajectories/%2e%2e%2fetc":       {404, "no trajectory"},
		"groups/nonsense":                 {400, "not the id of a group"},
		"groups/g000000-a0":               {404, "no trajectory"},
		"series":                          {400, "keys"},
		"series?keys=a&points=1":          {400, "points"},
		"lanes?from=soon":                 {400, "from"},
		"nothing":                         {404, "no such address"},
		"trajectories?offset=99999999999": {200, ""},
	} {
		status, out := ask(t, s, "GET", "/api/runs/demo/"+path, "", "")
		require.Equal(t, c.want, status, path)
		if c.why != "" {
			require.Contains(t, out["error"], c.why, path)
		}
	}
}
