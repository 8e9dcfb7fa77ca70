package assembly

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
)

// failureView keeps the failures that are shown, and calls shown at each.
type failureView struct {
	quietView
	mu    sync.Mutex
	seen  []report.Failure
	shown func()
}

func (v *failureView) Failing(failures []report.Failure) {
	v.mu.Lock()
	v.seen = append(v.seen, failures...)
	v.mu.Unlock()
	v.shown()
}

// openServed opens a run whose agent, or whose reward, is a service.
func openServed(t *testing.T, agent, reward string, trial bool) (*LocalRun, error) {
	t.Helper()
	return openServedWithin(t, "2m", agent, reward, trial)
}

// openServedWithin is openServed with a time limit of an episode.
func openServedWithin(t *testing.T, timeout, agent, reward string, trial bool) (*LocalRun, error) {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 40 {
		rows.WriteString(`{"question": "box ` + strconv.Itoa(i) + ` ?", "answers": ["7"]}` + "\n")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "questions.jsonl"), []byte(rows.String()), 0o600))
	if reward != "" {
		reward = `{type: http, url: "` + reward + `"}`
	}
	file := filepath.Join(dir, "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
run: {name: fails, dir: `+dir+`, trial: `+strconv.FormatBool(trial)+`}
tasks: {boxes: {type: jsonl, questions: `+filepath.Join(dir, "questions.jsonl")+`, agent: mine, reward: `+cmp.Or(reward, "{type: posted}")+`}}
agents: {mine: {type: http, service: {url: "`+agent+`"}, stop: ["7"]}}
model: {layers: 1, max_positions: 32}
broker: {listen: "127.0.0.1:0"}
view: {listen: "127.0.0.1:0"}
eval: {every: 0}
producer: {retry_delay: 1ms}
trainer: {steps: 5, batch_groups: 2, minibatches: 1, cold_start: {steps: 0}, limits: {max_reward: 50, max_tokens: 16, max_turns: 2, timeout: `+timeout+`}}
`), 0o600))
	doors := builtin.Doors()
	cfg, origins, err := Resolve(doors, config.Sources{Files: []string{file}})
	require.NoError(t, err)
	s, err := New(cfg, Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler), Notes: t.Output(), Answers: t.Output()})
	require.NoError(t, err)
	s.Origins = origins
	return s.OpenLocal(t.Context(), false)
}

// answering is the address of a service that answers each call so.
func answering(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	service := httptest.NewServer(handle)
	t.Cleanup(service.Close)
	return service.URL
}

func refusing(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, `{"error": "tools: the model has no chat template"}`, http.StatusServiceUnavailable)
}

// asking is an agent that asks the policy once, and answers with a number or a text as its reward.
func asking(w http.ResponseWriter, r *http.Request) {
	var offer struct {
		Base string `json:"base_url"`
		Key  string `json:"api_key"`
	}
	_ = json.NewDecoder(r.Body).Decode(&offer)
	req, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, offer.Base+"/chat/completions", strings.NewReader(`{"messages": [{"role": "user", "content": "box 1 ?"}]}`))
	req.Header.Set("Authorization", "Bearer "+offer.Key)
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
	}
	_, _ = io.WriteString(w, `{"answer": "7", "reward": 1}`)
}

// N1: what fails is reported before anything starts, by a trial episode of each task.
func TestATrialEpisodeFindsFaultsBeforeTheRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent, reward http.HandlerFunc
		want          []string
	}{
		"an agent's service fails": {refusing, nil, []string{"trial episode of task boxes: agent mine: ", "answered 503 Service Unavailable: tools: the model has no chat template", "--run.trial=false"}},
		"a reward of a wrong type": {
			asking, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"reward": "one"}`) },
			[]string{"trial episode of task boxes: reward http: ", `reward: got a string, want a number (the answer: {"reward": "one"})`},
		},
		"an agent's reward of a wrong type": {
			func(w http.ResponseWriter, r *http.Request) {
				asking(httptest.NewRecorder(), r)
				_, _ = io.WriteString(w, `{"answer": "7", "reward": "1.0"}`)
			}, nil,
			[]string{"trial episode of task boxes: agent mine: ", `reward: got a string, want a number (the answer: {"answer": "7", "reward": "1.0"})`},
		},
		// Reader 10, finding 1: such a run began, and every episode of it was refused as poisoned.
		"an agent's reward beyond all bounds": {
			func(w http.ResponseWriter, r *http.Request) {
				asking(httptest.NewRecorder(), r)
				_, _ = io.WriteString(w, `{"answer": "7", "reward": 1e300}`)
			}, nil,
			[]string{"trial episode of task boxes: agent mine: ", "reward is 1e+300: want a number of at most 1e+06 by magnitude"},
		},
		"a reward beyond the trainer's bound": {
			func(w http.ResponseWriter, r *http.Request) {
				asking(httptest.NewRecorder(), r)
				_, _ = io.WriteString(w, `{"answer": "7", "reward": 51}`)
			}, nil,
			[]string{"trial episode of task boxes: the trainer would refuse such episodes as poisoned: reward is 51, trainer.limits.max_reward is 50"},
		},
		"an agent that never asks": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"answer": "7"}`) }, nil,
			[]string{"trial episode of task boxes: no token was sampled"},
		},
		"nothing": {asking, nil, nil},
		"an agent that fails at the text": {func(w http.ResponseWriter, r *http.Request) {
			asking(httptest.NewRecorder(), r)
			http.Error(w, "cannot parse the model's text", http.StatusInternalServerError)
		}, nil, nil},
		"an agent that asks for ever": {func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			for r.Context().Err() == nil {
				again := r.Clone(r.Context())
				again.Body = io.NopCloser(bytes.NewReader(body))
				asking(httptest.NewRecorder(), again)
			}
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reward := ""
			if c.reward != nil {
				reward = answering(t, c.reward)
			}
			local, err := openServed(t, answering(t, c.agent), reward, true)
			if local != nil {
				defer local.Close()
			}
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// An agent that does not end is named after its trial episode, and the run starts: its tools may be slow.
func TestATrialEpisodeThatDoesNotEndIsNoted(t *testing.T) {
	t.Parallel()
	local, err := openServedWithin(t, "300ms", answering(t, func(w http.ResponseWriter, r *http.Request) {
		asking(httptest.NewRecorder(), r)
		<-r.Context().Done()
	}), "", true)
	require.NoError(t, err)
	defer local.Close()
	require.Len(t, local.Course.TrialNotes(), 1)
	require.Contains(t, local.Course.TrialNotes()[0], "trial episode of task boxes: the agent asked the policy, and then did not end within 300ms")
}

// N1, N2: a run whose agent's service fails shows that within 20 failures, with the part's name and the service's own words.
func TestARunShowsThatItsEpisodesFail(t *testing.T) {
	local, err := openServed(t, answering(t, refusing), "", false)
	require.NoError(t, err)
	defer local.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	view := &failureView{shown: stop}
	err = local.Train(ctx, view)
	require.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
	view.mu.Lock()
	defer view.mu.Unlock()
	require.NotEmpty(t, view.seen)
	first := view.seen[0]
	require.Equal(t, "boxes", first.Task)
	require.LessOrEqual(t, first.Failed, 20)
	require.Zero(t, first.Succeeded)
	require.Equal(t, map[string]int{"agent": first.Failed}, first.ByCause)
	require.Contains(t, first.Last, "agent mine: ")
	require.Contains(t, first.Last, "answered 503 Service Unavailable: tools: the model has no chat template")
}
