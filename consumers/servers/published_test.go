package servers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/realpython"
)

// exchange is a request with the events of its answer.
type exchange struct {
	Path    string            `json:"path"`
	Request json.RawMessage   `json:"request"`
	Answers []json.RawMessage `json:"answers"`
}

// recorder is a proxy that keeps what goes through it.
type recorder struct {
	mu   sync.Mutex
	seen []exchange
}

// record is the URL of a proxy before a server.
func (r *recorder) record(t *testing.T, server string) string {
	t.Helper()
	to, err := url.Parse(server)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		q.Body = io.NopCloser(bytes.NewReader(body))
		var answer bytes.Buffer
		proxy.ServeHTTP(teeWriter{w, &answer}, q)
		x := exchange{Path: q.URL.Path, Request: body, Answers: []json.RawMessage{}}
		for line := range bytes.Lines(answer.Bytes()) {
			if data, is := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: {")); is {
				x.Answers = append(x.Answers, append([]byte{'{'}, data...))
			}
		}
		if len(body) > 0 {
			r.mu.Lock()
			r.seen = append(r.seen, x)
			r.mu.Unlock()
		}
	}))
	t.Cleanup(front.Close)
	return front.URL
}

type teeWriter struct {
	http.ResponseWriter
	copy *bytes.Buffer
}

func (w teeWriter) Write(b []byte) (int, error) {
	w.copy.Write(b)
	return w.ResponseWriter.Write(b)
}

func (w teeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Each request that a run sends, and each event that the stand-in of vLLM answers, is of the classes of the published servers, and has no field that
// they do not know.
func TestRequestsFitThePublishedClasses(t *testing.T) {
	for _, c := range []struct {
		kind    fakeserver.Kind
		release fakeserver.Release
		text    bool
		module  string
		paths   []string
	}{
		{fakeserver.VLLM, fakeserver.VLLM32, false, "vllm", []string{"/inference/v1/generate"}},
		{fakeserver.VLLM, fakeserver.VLLM32, true, "vllm", []string{"/v1/completions"}},
		{
			fakeserver.SGLang, fakeserver.SGLang23, false, "sglang.srt.managers.io_struct",
			[]string{"/generate", "/pause_generation", "/continue_generation", "/update_weights_from_disk", "/weights_checker"},
		},
	} {
		t.Run(string(c.kind)+c.paths[0], func(t *testing.T) {
			t.Parallel()
			python := realpython.VLLMPython(t, c.module)
			var r recorder
			for _, mode := range []consumers.SwapMode{consumers.SwapKeep, consumers.SwapRecompute, consumers.SwapDrain} {
				o := good()
				o.Release, o.NoTokenRoute, o.PromptDetails = c.release, c.text, true
				from := newWorld(t, c.kind, nil)
				w := newWorldOver(t, from, func(c *consumers.Config) { c.Swap, c.Server.VerifyEvery, c.Server.EndsEvery = mode, 1, 2 }, r.record(t, from.fake(o).URL()))
				w.run()
				w.swapSoon(0)
				w.whole(ask("a", 8))
				w.swapSoon(1)
				stops := ask("b", 20)
				stops.StopTokens = []int32{2, 3, 4, 5}
				for range 4 {
					_, err := w.generate(stops)
					require.NoError(t, err)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			var lines bytes.Buffer
			for _, x := range r.seen {
				require.NoError(t, json.NewEncoder(&lines).Encode(x))
			}
			path := filepath.Join(t.TempDir(), "exchanges")
			require.NoError(t, os.WriteFile(path, lines.Bytes(), 0o644))
			var held map[string]int
			require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/published.py", string(c.kind), path)), &held))
			t.Logf("held to the classes: %v", held)
			for _, path := range c.paths {
				require.Positive(t, held[path], path)
			}
		})
	}
}
