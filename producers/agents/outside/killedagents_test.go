package outside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

// post posts JSON with a key and reads the answer into v; the status is that of the answer, 0 where there was none.
func post(ctx context.Context, url, key string, body, v any) (status int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, fmt.Errorf("%s: %s", res.Status, got)
	}
	return res.StatusCode, json.Unmarshal(got, v)
}

// offer is an episode as an agent is told of it.
type offer struct {
	Base   string `json:"base_url"`
	Key    string `json:"api_key"`
	Prompt string `json:"prompt"`
	ID     string `json:"episode"`
}

// askEight is an agent that asks eight times, each time with all that was said, and answers with the last reply. post is how it posts.
func askEight(ctx context.Context, o offer, post func(ctx context.Context, url, key string, body, v any) (int, error)) (string, error) {
	messages := []map[string]string{{"role": "user", "content": o.Prompt}}
	said := ""
	for turn := range askedTurns {
		var a struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if _, err := post(ctx, o.Base+"/chat/completions", o.Key, map[string]any{"messages": messages, "max_tokens": 6}, &a); err != nil {
			return "", err
		}
		said = a.Choices[0].Message.Content
		messages = append(messages, map[string]string{"role": "assistant", "content": said},
			map[string]string{"role": "user", "content": fmt.Sprint(turn)})
	}
	return said, nil
}

// asksEight is askEight as a program, which writes its process id to a file where it may. Where nobody answers it does not end by itself.
const asksEight = `import json, os, time, urllib.request as u
try:
    with open(os.environ["PIDS"], "a") as f: f.write(f"{os.getpid()}\n")
except OSError: pass
messages = [{"role": "user", "content": os.environ["WEIR_PROMPT"]}]
for turn in range(8):
    r = u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps({"messages": messages, "max_tokens": 6}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    try: said = json.load(u.urlopen(r))["choices"][0]["message"]["content"]
    except OSError: time.sleep(1e6)
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": str(turn)}]
print(said)
`

// startService starts askEight as a service.
func startService(t *testing.T) string {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o offer
		_ = json.NewDecoder(r.Body).Decode(&o)
		answer, err := askEight(r.Context(), o, post)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"answer": answer, "reward": 1})
	}))
	t.Cleanup(service.Close)
	return service.URL
}

// Producers are processes that are killed while agents outside ask them. The next producer calls the agent again, which repeats its
// requests: it is given the answers that it had, the trajectories are those of undisturbed episodes, each comes once, and of the tokens only
// those that were not yet written are sampled again.
func TestAnAgentOutsideIsGivenItsAnswersAgainAfterItsProducerWasKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	service := startService(t)
	startKilling(ctx, t, service, 4).playKilled(kindService, service)
}

// The same of an agent that is a program: it ends with its producer, so that no two of it work on an episode, and the program that is
// started anew is given its answers again.
func TestAnAgentsProgramEndsWithItsKilledProducerAndItsSuccessorIsGivenItsAnswers(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	t.Run("without a sandbox", func(t *testing.T) {
		k := startKilling(ctx, t, startService(t), 4)
		pids := filepath.Join(t.TempDir(), "pids")
		k.killed = func() { requireGone(t, pids) }
		k.playKilled(kindProgram, pids)
	})
	t.Run("in a sandbox", func(t *testing.T) {
		workspacetest.Spaces(t, nil)
		startKilling(ctx, t, startService(t), 4).playKilled(kindSandbox, "/nowhere")
	})
}

// requireGone waits until the processes of a file have ended.
func requireGone(t *testing.T, file string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // a program is told of its parent's death on Linux alone
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return // none was started
	}
	require.NoError(t, err)
	for pid := range strings.FieldsSeq(string(data)) {
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		}, time.Minute, 10*time.Millisecond, "the program %s outlives its producer", pid)
	}
}

// The same of agents that come for episodes, and come again where their producer is gone.
func TestAnAgentThatComesAgainAfterItsProducerWasKilledIsGivenItsAnswers(t *testing.T) {
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	port, err := ports.Reserve()
	require.NoError(t, err)
	defer func() { require.NoError(t, port.Release()) }()
	k := startKilling(ctx, t, startService(t), 4)
	coming, stop := context.WithCancel(ctx)
	ended := make(chan struct{}, 2)
	for range cap(ended) {
		go func() {
			defer func() { ended <- struct{}{} }()
			for coming.Err() == nil {
				var o offer
				if _, err := post(coming, "http://"+port.Address+"/episodes", "sesame", struct{}{}, &o); err != nil {
					pause(coming, 20*time.Millisecond)
					continue
				}
				if answer, err := askEight(coming, o, post); err == nil {
					_, _ = post(coming, o.Base+"/weir/finish", o.Key, map[string]any{"answer": answer, "reward": 1}, new(any))
				}
			}
		}()
	}
	k.playKilled(kindComing, port.Address)
	stop()
	for range cap(ended) {
		<-ended
	}
}

// pause waits before an agent asks again a service that is away.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
