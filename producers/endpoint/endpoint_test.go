package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers each request as it is told.
func serve(t *testing.T, change func(*Config), handle func(n int, r request) (status int, body string)) *Endpoint {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body request
		if r.URL.Path != "/v1/chat/completions" || json.NewDecoder(r.Body).Decode(&body) != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		status, text := handle(int(n.Add(1)), body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	cfg := DefaultConfig()
	cfg.URL, cfg.Model, cfg.Backoff, cfg.Retries = server.URL+"/v1/", "m", time.Millisecond, 1
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		e.Close()
		server.Close()
	})
	return e
}

func says(content string) string {
	data, _ := json.Marshal(content)
	return `{"choices": [{"message": {"role": "assistant", "content": ` + string(data) + `}, "finish_reason": "stop"}], "usage": {"completion_tokens": 7}}`
}

func calls(list ...string) string {
	return `{"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [` + strings.Join(list, ",") + `]}, "finish_reason": "tool_calls"}], "usage": {"completion_tokens": 3}}`
}

func look(arguments string) string {
	data, _ := json.Marshal(arguments)
	return `{"id": "c1", "type": "function", "function": {"name": "look", "arguments": ` + string(data) + `}}`
}

// tool takes free text, and counts its sessions.
type tool struct {
	opened, closed atomic.Int64
	world          string
	fail           error
	done           bool
	opens          time.Duration // how long a session takes to open
}

func (*tool) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "look"} }

func (l *tool) Call(_ context.Context, c producers.Call) (producers.Observation, error) {
	answer := "given"
	return producers.Observation{Text: "seen " + c.Arguments, Done: l.done, Answer: &answer}, l.fail
}

func (l *tool) Open(ctx context.Context, s producers.Session) error {
	select {
	case <-time.After(l.opens):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.opened.Add(1)
	l.world = string(s.World)
	return nil
}

func (l *tool) Close(context.Context, string) error {
	l.closed.Add(1)
	return nil
}

type match struct{}

func (match) Score(_ context.Context, t *schemas.Ticket, tr *producers.Transcript) (producers.Score, error) {
	if tr.Stop == schemas.StopAnswer && tr.Answer == t.Prompt.Answers[0] {
		return producers.Score{Total: 1, Components: map[string]float64{producers.ComponentExactMatch: 1}}, nil
	}
	return producers.Score{Components: map[string]float64{producers.ComponentExactMatch: 0}}, nil
}

func roll(t *testing.T, e *Endpoint, l *tool, change func(*schemas.Ticket)) (*schemas.Trajectory, *producers.Transcript, error) {
	t.Helper()
	ticket := &schemas.Ticket{
		Run: "r", ID: "e", Prompt: schemas.Prompt{ID: "p", Text: "where ?", Answers: []string{"there"}, Source: "s", World: json.RawMessage(`{"k": 1}`)},
		Sampling: schemas.Sampling{Temperature: 0.5}, Limits: schemas.Limits{MaxTurns: 2, MaxTokens: 99},
	}
	if change != nil {
		change(ticket)
	}
	tr, transcript, err := e.Roll(producers.Environment{Tools: []producers.Tool{l}, Reward: match{}})(t.Context(), ticket)
	require.Equal(t, l.opened.Load(), l.closed.Load(), "every session is closed")
	return tr, transcript, err
}

func TestAnEpisodeWithATool(t *testing.T) {
	t.Parallel()
	var asked []request
	e := serve(t, func(c *Config) { c.System, c.AnswerTag = "Look.", "answer" }, func(n int, r request) (int, string) {
		asked = append(asked, r)
		return 200, []string{calls(look(`{"query": "a"}`), look(`{"q": 1}`)), says("I know. <answer> there </answer>")}[n-1]
	})
	l := &tool{}
	tr, transcript, err := roll(t, e, l, nil)
	require.NoError(t, err)
	require.InDelta(t, 1, tr.Reward, 0)
	require.Equal(t, "there", tr.Answer)
	require.Equal(t, "s", tr.Source)
	require.Equal(t, 10, transcript.Sampled)
	require.Equal(t, 1, transcript.Calls())
	require.Equal(t, "look, look", transcript.Turns[0].Tool)
	require.Equal(t, "seen a\nerror: the arguments of look must be {\"query\": a text}", transcript.Turns[0].Observation)
	require.JSONEq(t, `{"k": 1}`, l.world)
	require.Len(t, asked[0].Tools, 1)
	require.InDelta(t, 0.5, asked[0].Temperature, 0)
	require.Equal(t, "Look.", *asked[0].Messages[0].Content)
	require.Len(t, asked[1].Messages, 5, "system, user, assistant, two answers of tools")
	require.Equal(t, "c1", asked[1].Messages[3].ToolCallID)
	require.Nil(t, asked[1].Messages[2].Content, "the assistant's message goes back as it came")
}

func TestHowEpisodesEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*schemas.Ticket)
		tool   *tool
		say    string
		stop   schemas.StopReason
		answer string
		err    string
	}{
		"answer":           {nil, &tool{}, says(" there "), schemas.StopAnswer, "there", ""},
		"nothing said":     {nil, &tool{}, says(" "), schemas.StopFormat, "", ""},
		"cut off":          {nil, &tool{}, strings.Replace(says("there"), `"stop"`, `"length"`, 1), schemas.StopTokens, "", ""},
		"too many calls":   {nil, &tool{}, calls(look(`{"query": "a"}`)), schemas.StopTurns, "", ""},
		"the tool answers": {nil, &tool{done: true}, calls(look(`{"query": "a"}`)), schemas.StopAnswer, "given", ""},
		"tool away":        {nil, &tool{fail: producers.ErrUnavailable}, calls(look(`{"query": "a"}`)), "", "", "unavailable"},
		"tool fails":       {nil, &tool{fail: errors.New("no")}, calls(look(`{"query": "a"}`)), schemas.StopTurns, "", ""},
		"no choices":       {nil, &tool{}, `{"choices": []}`, "", "", "choices: none"},
		"no JSON":          {nil, &tool{}, `<html>`, "", "", "ask the model"},
		"without tools":    {func(t *schemas.Ticket) { t.Limits.MaxTurns = 0 }, &tool{}, says("there"), schemas.StopAnswer, "there", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, nil, func(_ int, r request) (int, string) {
				if name == "without tools" && len(r.Tools) > 0 {
					return 400, ""
				}
				return 200, c.say
			})
			tr, _, err := roll(t, e, c.tool, c.change)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.stop, tr.Stop)
			require.Equal(t, c.answer, tr.Answer)
		})
	}
}

func TestAnEndpointThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	e := serve(t, nil, func(n int, _ request) (int, string) {
		if n == 1 {
			return 503, ""
		}
		return 200, says("there")
	})
	tr, _, err := roll(t, e, &tool{}, nil)
	require.NoError(t, err, "it came back")
	require.Equal(t, "there", tr.Answer)
	gone := serve(t, nil, func(int, request) (int, string) { return 503, "" })
	_, _, err = roll(t, gone, &tool{}, nil)
	require.ErrorIs(t, err, producers.ErrUnavailable)
	for _, want := range []string{"url:", "model: "} {
		require.ErrorContains(t, Config{}.Validate(), want)
	}
}

// Finding 13.2: the time in which an episode waits for its sessions is not the endpoint's.
func TestTheTimeOfAnEndpointBeginsWhenTheSessionsAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		ticket := &schemas.Ticket{Run: "r", ID: "e", Prompt: schemas.Prompt{ID: "p", Text: "where ?"}, Limits: schemas.Limits{MaxTurns: 2, Timeout: limit}}
		asked := time.Now()
		a := &episode{ticket: ticket, env: producers.Environment{Tools: []producers.Tool{&tool{opens: 50 * time.Second}}}}
		end, err := a.openInTime(t.Context())
		defer end()
		require.NoError(t, err)
		require.Equal(t, 50*time.Second, a.started.Sub(asked.UTC()))
		a.env.Tools = []producers.Tool{&tool{opens: time.Hour}}
		end, err = a.openInTime(t.Context())
		defer end()
		require.ErrorIs(t, err, errTimedOut)
		require.Equal(t, limit+50*time.Second, time.Since(asked))
	})
}
