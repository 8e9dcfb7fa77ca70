package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// A model behind an endpoint is asked the questions of a task and scored by its reward, without its chat template.
func TestEvalAsksAnEndpoint(t *testing.T) {
	t.Parallel()
	var keys atomic.Int64 // requests that bore a key
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Role, Content string }
			Model    string
		}
		if r.Header.Get("Authorization") != "" {
			keys.Add(1)
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Model != "sums" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		asked := body.Messages[len(body.Messages)-1].Content
		answer := "I do not know"
		if strings.HasSuffix(asked, "minus zero ?") { // x minus zero is x
			answer = strings.Fields(asked)[2]
		}
		fmt.Fprintf(w, `{"choices": [{"message": {"role": "assistant", "content": "It is \\boxed{%s}."}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}`, answer)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	rows, err := os.ReadFile(filepath.Join(root, "examples", "own-data", "plus.jsonl"))
	require.NoError(t, err)
	lines := append(rows, "{\"question\": \"what is four minus zero ?\", \"answer\": \"four\", \"source\": \"minus\"}\n"...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), lines, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte("tasks:\n  sums:\n    type: dataset\n    agent: chat\n    reward: {type: math}\n    test_files: ["+
		filepath.Join(dir, "rows.jsonl")+"]\n    train_files: ["+filepath.Join(root, "examples", "own-data", "minus.parquet")+"]\n"), 0o600))
	run := func(args ...string) (string, string, error) {
		var out, errs bytes.Buffer
		cmd := (&app{doors: builtin.Doors(), console: console{out: &out, err: &errs, environ: os.Environ()}}).rootCommand()
		cmd.SetArgs(append([]string{"eval", "--run.dir", dir, "--config", filepath.Join(dir, "run.yaml")}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), errs.String(), err
	}
	samples := filepath.Join(dir, "samples.jsonl")
	out, _, err := run("--endpoint", server.URL+"/v1", "--model-name", "sums", "--split", "test", "--questions", "10", "--samples", samples, "--repeat", "2", "--temperature", "1")
	require.NoError(t, err)
	require.Contains(t, out, "sums at "+server.URL)
	require.Contains(t, out, "minus 1.00  plus 0.00")
	require.Regexp(t, `pass@2 +0\.\d`, out)
	require.Zero(t, keys.Load())
	kept, err := os.ReadFile(samples)
	require.NoError(t, err)
	require.Contains(t, string(kept), `"answer":"It is \\boxed{four}."`)

	_, _, err = run("--endpoint", server.URL+"/v1", "--model-name", "other", "--split", "test", "--questions", "1")
	require.ErrorContains(t, err, "each of 1 rollouts failed")
	_, _, err = run("--endpoint", server.URL, "--split", "test")
	require.ErrorContains(t, err, "model: ")
	_, _, err = run("--endpoint", server.URL, "--model-name", "sums", "--step", "3")
	require.ErrorContains(t, err, "--step and --endpoint: want either")
	_, _, err = run("--samples", samples)
	require.ErrorContains(t, err, "it is there already")
}
