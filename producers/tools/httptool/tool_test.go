package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve makes the tool of a service that answers as it is told.
func serve(t *testing.T, change func(*Config), handle http.HandlerFunc) *Tool {
	t.Helper()
	server := httptest.NewServer(handle)
	cfg := DefaultConfig()
	cfg.URL, cfg.Backoff, cfg.Name = server.URL, time.Millisecond, "calculator"
	if change != nil {
		change(&cfg)
	}
	tool, err := New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, tool.Close())
		server.Close()
	})
	return tool
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestACall(t *testing.T) {
	t.Parallel()
	var request Request
	var header string
	var decoded error
	tool := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Get(remote.HeaderKey)
		decoded = json.NewDecoder(r.Body).Decode(&request)
		says(200, `{"text": "4\u001b[2J", "reward": 0.5, "done": true}`)(w, r)
	})
	got, err := tool.Call(t.Context(), producers.Call{Run: "demo", Episode: "g1-a0-2", Index: 3, Seed: math.MaxUint64, Arguments: "2 + 2"})
	require.NoError(t, err)
	require.NoError(t, decoded)
	half := 0.5
	require.Equal(t, producers.Observation{Text: "4", Reward: &half, Done: true}, got, "without the escape sequence")
	require.Equal(t, "demo/g1-a0-2/3/", request.Key[:len("demo/g1-a0-2/3/")])
	require.Equal(t, header, request.Key)
	request.Key = ""
	require.Equal(t, Request{Run: "demo", Episode: "g1-a0-2", Call: 3, Seed: math.MaxUint64, Tool: "calculator", Arguments: "2 + 2"}, request)
}

// An episode that is rolled out again has the same id: what it asks for then is another call, unless it is the same.
func TestTheKeyNamesTheCallAndWhatIsAsked(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	tool := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get(remote.HeaderKey)] = true
		says(200, `{"text": ""}`)(w, r)
	})
	one := producers.Call{Run: "r", Episode: "e", Index: 1, Arguments: "a"}
	for _, change := range []func(*producers.Call){
		func(*producers.Call) {}, func(*producers.Call) {}, func(c *producers.Call) { c.Run = "s" }, func(c *producers.Call) { c.Episode = "f" },
		func(c *producers.Call) { c.Index = 2 }, func(c *producers.Call) { c.Arguments = "b" },
	} {
		call := one
		change(&call)
		_, err := tool.Call(t.Context(), call)
		require.NoError(t, err)
	}
	require.Len(t, keys, 5)
}

// A refusal is told to the agent; everything else that goes wrong is the machinery's.
func TestWhatTheAgentIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		body    string
		want    string
		refusal bool
	}{
		"refused":        {400, `{"error": "division by zero"}`, "division by zero", true},
		"error page":     {400, `<html>`, "answered 400", false},
		"no text":        {200, `{"reward": 1}`, "text: missing", false},
		"null text":      {200, `{"text": null}`, "text: missing", false},
		"huge reward":    {200, `{"text": "", "reward": 1e300}`, "reward: 1e+300: max_reward is 1e+06", false},
		"huge loss":      {200, `{"text": "", "reward": -1e7}`, "max_reward", false},
		"NaN reward":     {200, `{"text": "", "reward": NaN}`, "invalid character", false},
		"text as number": {200, `{"text": 4}`, "text: got a number, want a string", false},
		"away":           {503, ``, "answered 503", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, nil, says(c.status, c.body)).Call(t.Context(), producers.Call{})
			require.ErrorContains(t, err, c.want)
			if c.refusal {
				require.NotErrorIs(t, err, producers.ErrUnavailable)
				require.EqualError(t, err, c.want, "nothing but the service's own words")
			} else {
				require.ErrorIs(t, err, producers.ErrUnavailable)
			}
		})
	}
}

// A policy must not take its episode out of training by arguments that a service fails at: attack2's class of ways, row services of
// docs/guarantees.md.
func TestAServiceThatFailsAtOneCallWhileItAnswersOthers(t *testing.T) {
	t.Parallel()
	fails := map[string]http.HandlerFunc{
		"a failure":        says(500, ""),
		"a bad gateway":    says(502, ""),
		"a useless answer": says(200, "{}"),
		"too long":         says(200, `{"text": "`+strings.Repeat("x", 2<<20)+`"}`),
		"no answer":        func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a broken line":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for name, fail := range fails {
		for _, others := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, others %t", name, others), func(t *testing.T) {
				t.Parallel()
				var tool *Tool
				tool = serve(t, func(c *Config) { c.AttemptTimeout, c.Retries = 200*time.Millisecond, 1 }, func(w http.ResponseWriter, r *http.Request) {
					var request Request
					if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Arguments == "well" {
						says(200, `{"text": "4"}`)(w, r)
						return
					}
					if others { // another episode's call is answered while this one is tried
						_, _ = tool.Call(context.WithoutCancel(r.Context()), producers.Call{Arguments: "well"})
					}
					fail(w, r)
				})
				_, err := tool.Call(t.Context(), producers.Call{Arguments: "poison"})
				if others {
					require.EqualError(t, err, "the service failed at this call")
					require.NotErrorIs(t, err, producers.ErrUnavailable)
				} else {
					require.ErrorIs(t, err, producers.ErrUnavailable)
				}
			})
		}
	}
}

// A service that asks to be left alone is away, also where it answers others.
func TestAnOverloadedServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 429, 503} {
		var tool *Tool
		tool = serve(t, func(c *Config) { c.Retries = 1 }, func(w http.ResponseWriter, r *http.Request) {
			var request Request
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Arguments == "well" {
				says(200, `{"text": "4"}`)(w, r)
				return
			}
			_, _ = tool.Call(context.WithoutCancel(r.Context()), producers.Call{Arguments: "well"})
			w.WriteHeader(status)
		})
		_, err := tool.Call(t.Context(), producers.Call{Arguments: "busy"})
		require.ErrorIs(t, err, producers.ErrUnavailable, status)
	}
}

// The time limit that every tool has from outside does not turn a service that is away into an observation.
func TestAServiceThatHangsIsUnavailable(t *testing.T) {
	t.Parallel()
	tool := serve(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	_, err := tools.Within(tool, 20*time.Millisecond).Call(t.Context(), producers.Call{})
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

func TestParameters(t *testing.T) {
	t.Parallel()
	var got json.RawMessage
	var decoded error
	tool := serve(t, func(c *Config) { c.Parameters = `{"type": "object"}` }, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Arguments json.RawMessage }
		decoded = json.NewDecoder(r.Body).Decode(&body)
		got = body.Arguments
		says(200, `{"text": ""}`)(w, r)
	})
	_, err := tool.Call(t.Context(), producers.Call{Arguments: ` {"n": 12345678901234567890, "a": [1]} `})
	require.NoError(t, err)
	require.NoError(t, decoded)
	require.JSONEq(t, `{"n": 12345678901234567890, "a": [1]}`, string(got))
	require.Contains(t, string(got), "12345678901234567890", "as it was written")
	for _, wrong := range []string{"two", "", "[1]", "null", `{"a":`} {
		_, err := tool.Call(t.Context(), producers.Call{Arguments: wrong})
		require.ErrorContains(t, err, "not a JSON object")
		require.NotErrorIs(t, err, producers.ErrUnavailable, "the agent wrote it, and is told")
	}
}

func TestTheServiceDescribesItself(t *testing.T) {
	t.Parallel()
	unnamed := func(c *Config) { c.Name = "" }
	var tries atomic.Int64
	tool := serve(t, unnamed, func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) < 3 {
			says(503, "")(w, r) // it is starting
			return
		}
		if r.Method != http.MethodGet {
			says(405, "")(w, r)
			return
		}
		says(200, `{"name": "calculator", "description": "adds\u0007", "parameters": {"type": "object"}}`)(w, r)
	})
	require.Equal(t, producers.ToolSpec{Name: "calculator", Description: "adds", Parameters: json.RawMessage(`{"type": "object"}`)}, tool.Spec())

	for body, want := range map[string]string{
		`{}`: "name: missing", `{"name": " \u0000"}`: "name: missing", `{"name": ""}`: "name: missing", `{"name": "a", "parameters": "text"}`: "parameters:", `<html>`: "no JSON object",
	} {
		server := httptest.NewServer(says(200, body))
		cfg := DefaultConfig()
		cfg.URL = server.URL
		_, err := New(t.Context(), cfg)
		server.Close()
		require.ErrorContains(t, err, want, body)
		require.ErrorContains(t, err, "ask "+server.URL+" what the tool is called")
		require.ErrorContains(t, err, "or set name, description and parameters")
	}
}

func TestType(t *testing.T) {
	t.Setenv("TOOL_TOKEN", "s3cr3t")
	cfg := Type().Config().(*Config)
	cfg.URL, cfg.Name, cfg.TokenEnv = "http://tools.example/x", "x", "TOOL_TOKEN"
	var log bytes.Buffer
	tool, err := Type().Open(t.Context(), tools.Opening{Name: "mine", Config: cfg, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.Equal(t, "x", tool.Spec().Name)
	require.Contains(t, log.String(), "unencrypted")
	require.NotContains(t, log.String(), "s3cr3t")
	_, err = Type().Open(t.Context(), tools.Opening{Name: "mine", Config: Type().Config()})
	require.ErrorContains(t, err, `url: "": want the service's address`)
	err = Config{Reference: remote.DefaultReference(), Description: "x", Parameters: "[]", MaxReward: math.NaN()}.Validate()
	for _, want := range []string{"url:", "name:", "parameters:", "max_reward: NaN"} {
		require.ErrorContains(t, err, want)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"text": "a", "reward": 1, "done": true}`))
	f.Add([]byte(`{"text": "a", "reward": 1e308}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a Answer
		if remote.Strict(&a)(data) != nil || a.checkAnswer(1e6) != nil {
			return
		}
		require.NotNil(t, a.Text)
		if a.Reward != nil {
			require.LessOrEqual(t, math.Abs(*a.Reward), 1e6)
		}
		require.False(t, strings.ContainsRune(remote.Clean(*a.Text), 0x1b))
	})
}
