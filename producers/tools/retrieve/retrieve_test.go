package retrieve

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/toolserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, handler http.Handler, change func(*Config)) *Tool {
	t.Helper()
	server := httptest.NewServer(handler)
	cfg := DefaultConfig()
	cfg.URL, cfg.Backoff = server.URL, time.Millisecond
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

// What Search-R1's retrieval server answers, with scores and without, and what its policies are shown of it.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"with scores": `{"result": [[{"document": {"id": "7", "contents": "\"Paris\"\nParis is the capital of France."}, "score": 0.87},
			{"document": {"id": "8", "contents": "Lyon"}, "score": 0.5}]]}`,
		"scores as texts": `{"result": [[{"document": {"contents": "\"Paris\"\nParis is the capital of France."}, "score": "0.87"}, {"document": {"contents": "Lyon"}, "score": "1"}]]}`,
		"without":         `{"result": [[{"id": "7", "contents": "\"Paris\"\nParis is the capital of France."}, {"contents": "Lyon"}]]}`,
		"too many":        `{"result": [[{"contents": "\"Paris\"\nParis is the capital of France."}, {"contents": "Lyon"}, {"contents": "Nice"}]]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked string
			tool := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				asked = string(data)
				_, _ = io.WriteString(w, answer)
			}), func(c *Config) { c.TopK = 2 })
			o, err := tool.Call(t.Context(), producers.Call{Arguments: " capital of France "})
			require.NoError(t, err)
			require.JSONEq(t, `{"queries": ["capital of France"], "topk": 2, "return_scores": true}`, asked)
			require.Equal(t, "Doc 1(Title: Paris) Paris is the capital of France.\nDoc 2(Title: ) Lyon", o.Text)
		})
	}
}

func TestWhatIsTheMachinerys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		body, want string
	}{
		"away": {503, "", "answered 503"}, "no list": {200, `{"result": []}`, "0 lists of documents"}, "no contents": {200, `{"result": [[{"text": "x"}]]}`, "a document has no contents"},
		"no JSON": {200, "<html>", "invalid character"}, "validation": {422, `{"detail": [{"loc": ["body"]}]}`, "answered 422"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}), nil)
			_, err := tool.Call(t.Context(), producers.Call{Arguments: "x"})
			require.ErrorIs(t, err, producers.ErrUnavailable)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := (&Tool{}).Call(t.Context(), producers.Call{Arguments: " "})
	require.ErrorContains(t, err, "the query is empty")
	require.NotErrorIs(t, err, producers.ErrUnavailable)
}

// The server of Weir's own answers this client as Search-R1's does, and anybody else's.
func TestAgainstTheServer(t *testing.T) {
	t.Parallel()
	search, err := tools.NewSearch(tools.DefaultSearchConfig(), []tasks.Passage{
		{Title: "Paris", Text: "Paris is the capital of France."}, {Title: "Lyon", Text: "Lyon is a city in France."}, {Title: "Oslo", Text: "Oslo is in Norway."},
	})
	require.NoError(t, err)
	handler := toolserver.Retrieve(search, 2)
	tool := serve(t, handler, nil)
	o, err := tool.Call(t.Context(), producers.Call{Arguments: "capital of France"})
	require.NoError(t, err)
	require.Equal(t, "Doc 1(Title: Paris) Paris is the capital of France.\nDoc 2(Title: Lyon) Lyon is a city in France.", o.Text)
	o, err = tool.Call(t.Context(), producers.Call{Arguments: "zebra"})
	require.NoError(t, err)
	require.Equal(t, tools.NothingFound, o.Text)

	post := func(body string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/retrieve", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	code, body := post(`{"queries": ["Oslo", "zebra"], "topk": 1}`)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"result": [[{"id": "2", "contents": "\"Oslo\"\nOslo is in Norway."}], []]}`, body)
	code, body = post(`{"queries": ["france"], "return_scores": true}`)
	require.Equal(t, 200, code)
	var scored struct {
		Result [][]struct {
			Document struct{ ID, Contents string }
			Score    float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &scored))
	require.Len(t, scored.Result[0], 2)
	require.Greater(t, scored.Result[0][0].Score, 0.0)
	for body, want := range map[string]string{`{"queries": []}`: "queries: 0", `{"queries": ["a"], "topk": 0}`: "topk: 0", `{`: "the body"} {
		code, said := post(body)
		require.Equal(t, 422, code)
		require.Contains(t, said, want)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/retrieve", nil))
	require.Equal(t, 405, w.Code)
}

func TestType(t *testing.T) {
	t.Parallel()
	_, err := Type().Open(t.Context(), tools.Opening{Name: "wiki", Config: Type().Config()})
	require.ErrorContains(t, err, "url:")
	cfg := Type().Config().(*Config)
	cfg.URL, cfg.TopK = "http://127.0.0.1:1/retrieve", 5
	tool, err := Type().Open(t.Context(), tools.Opening{Name: "wiki", Config: cfg})
	require.NoError(t, err)
	require.Equal(t, "search", tool.Spec().Name)
	require.Equal(t, []string{tools.NothingFound}, cfg.Texts())
	cfg.TopK, cfg.Name = 0, ""
	require.ErrorContains(t, cfg.Validate(), "top_k: 0")
	require.ErrorContains(t, cfg.Validate(), "name: empty")
}
