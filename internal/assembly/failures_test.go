package assembly

import (
	"context"
	"errors"
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

// N1, N2: a run whose agent's service fails shows that within 20 failures, with the part's name and the service's own words.
func TestARunShowsThatItsEpisodesFail(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error": "tools: the model has no chat template"}`, http.StatusServiceUnavailable)
	}))
	t.Cleanup(service.Close)
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 40 {
		rows.WriteString(`{"question": "box ` + strconv.Itoa(i) + ` ?", "answers": ["7"]}` + "\n")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "questions.jsonl"), []byte(rows.String()), 0o600))
	file := filepath.Join(dir, "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
run: {name: fails, dir: `+dir+`}
tasks: {boxes: {type: jsonl, questions: `+filepath.Join(dir, "questions.jsonl")+`, agent: mine, reward: {type: posted}}}
agents: {mine: {type: http, service: {url: "`+service.URL+`"}, stop: ["7"]}}
model: {layers: 1, max_positions: 32}
broker: {listen: "127.0.0.1:0"}
view: {listen: "127.0.0.1:0"}
eval: {every: 0}
producer: {retry_delay: 1ms}
trainer: {steps: 5, batch_groups: 2, minibatches: 1, cold_start: {steps: 0}, limits: {max_tokens: 16, max_turns: 2}}
`), 0o600))
	doors := builtin.Doors()
	cfg, origins, err := Resolve(doors, config.Sources{Files: []string{file}})
	require.NoError(t, err)
	s, err := New(cfg, Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler), Notes: t.Output(), Answers: t.Output()})
	require.NoError(t, err)
	s.Origins = origins
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	view := &failureView{shown: stop}
	local, err := s.OpenLocal(ctx, false)
	require.NoError(t, err)
	defer local.Close()
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
