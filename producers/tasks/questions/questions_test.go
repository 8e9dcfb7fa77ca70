package questions

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const row = `{"question": "2 plus 2 ?", "answers": ["4"], "source": "sums", "split": "train", "id": "q1", "meta": {"level": "1"}}`

func want() schemas.Prompt {
	return schemas.Prompt{ID: "q1", Text: "2 plus 2 ?", Answers: []string{"4"}, Source: "sums", Meta: map[string]string{"level": "1"}}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sums.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(row+"\n"), 0o600))
	cfg := FileType().Config().(*FileConfig)
	require.EqualError(t, cfg.Validate(), `questions: "": the task needs a JSONL file of questions`)
	cfg.Questions = file
	require.NoError(t, cfg.Validate())
	setup, err := FileType().Open(t.Context(), tasks.Opening{Name: "sums", Config: cfg, Texts: []string{"nothing found"}})
	require.NoError(t, err)
	require.Equal(t, "sums", setup.Data.Name)
	require.Equal(t, []schemas.Prompt{want()}, setup.Data.Questions[tasks.Train])
	for _, word := range []string{"plus", "4", "nothing", tasks.TokenAnswer} {
		_, known := setup.Tokenizer.ID(word)
		require.True(t, known, word)
	}
	again, err := FileType().Open(t.Context(), tasks.Opening{Name: "sums", Config: cfg, Tokenizer: setup.Tokenizer})
	require.NoError(t, err)
	require.Same(t, setup.Tokenizer, again.Tokenizer, "the run's comes first")

	require.NoError(t, os.WriteFile(file, []byte(row+"\n{}\n"), 0o600))
	_, err = FileType().Open(t.Context(), tasks.Opening{Name: "sums", Config: cfg})
	require.ErrorContains(t, err, file+":2: question: missing or empty")
	cfg.Questions = filepath.Join(dir, "none")
	_, err = FileType().Open(t.Context(), tasks.Opening{Name: "sums", Config: cfg})
	require.ErrorContains(t, err, "questions: open ")
}

// serve has a service answer each page, by name.
func serve(t *testing.T, pages func(page string) string) *ServiceConfig {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, pages(r.URL.Query().Get("page")))
	}))
	t.Cleanup(server.Close)
	cfg := ServiceType().Config().(*ServiceConfig)
	cfg.URL, cfg.Backoff, cfg.AttemptTimeout = server.URL+"/questions", time.Millisecond, 5*time.Second
	return cfg
}

func TestService(t *testing.T) {
	t.Parallel()
	cfg := serve(t, func(page string) string {
		at, _ := strconv.Atoi(page)
		if at == 3 {
			return `{"questions": []}`
		}
		return fmt.Sprintf(`{"questions": [%s], "next": "%d"}`, strings.ReplaceAll(row, `"q1"`, fmt.Sprintf(`"q%d"`, at)), at+1)
	})
	setup, err := ServiceType().Open(t.Context(), tasks.Opening{Name: "sums", Config: cfg})
	require.NoError(t, err)
	var ids []string
	for _, q := range setup.Data.Questions[tasks.Train] {
		ids = append(ids, q.ID)
	}
	require.Equal(t, []string{"q0", "q1", "q2"}, ids)
	require.Equal(t, want(), setup.Data.Questions[tasks.Train][1])
}

func TestWhatIsNoPageIsRefused(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{}`: `page "": questions: missing`, `{"questions": null}`: "questions: missing", `{"questions": {}}`: "questions: got an object, want an array",
		`{"questions": [], "next": 3}`: "next: got a number, want a string", `{"question": []}`: "unknown field",
		`{"questions": [], "next": "again"}`:                             `page "again": next: "again": want the name of a page that was not there yet`,
		`{"questions": [], "next": "` + strings.Repeat("x", 2000) + `"}`: "want the name of a page",
		`{"questions": []}`:                                                      "no question in it",
		`{"questions": [` + row + `, ` + row + `]}`:                              `:2: id "q1": row 1 has it too`,
		`{"questions": [{"question": "a", "answers": []}]}`:                      "answers: missing or empty",
		`{"questions": [{"question": "a", "answers": ["b"], "x": 1}]}`:           "x: unknown key",
		`{"questions": [{"question": "a", "answers": ["b"], "meta": {"n": 1}}]}`: "meta",
		`{"questions": [3]}`:                                                     "want an object",
		`<html>`:                                                                 "no JSON object",
	} {
		_, err := ServiceType().Open(t.Context(), tasks.Opening{Name: "sums", Config: serve(t, func(string) string { return answer })})
		require.ErrorContains(t, err, want, answer)
		require.ErrorContains(t, err, "")
	}
	cfg := serve(t, func(page string) string {
		return fmt.Sprintf(`{"questions": [%s], "next": "%sx"}`, row, page)
	})
	cfg.MaxQuestions = 20
	_, err := ServiceType().Open(t.Context(), tasks.Opening{Name: "sums", Config: cfg})
	require.ErrorContains(t, err, "max_questions is 20, and there are more")
	cfg.MaxQuestions, cfg.Retries = 0, -1
	err = cfg.Validate()
	require.ErrorContains(t, err, "max_questions: 0")
	require.ErrorContains(t, err, "retries: -1")
}

func FuzzPage(f *testing.F) {
	f.Add(`{"questions": [` + row + `], "next": ""}`)
	f.Add(`{"questions": [[]], "next": "a"}`)
	f.Fuzz(func(t *testing.T, body string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		defer server.Close()
		cfg := DefaultServiceConfig()
		cfg.URL = server.URL
		setup, err := ServiceType().Open(t.Context(), tasks.Opening{Name: "sums", Config: &cfg})
		if err == nil {
			require.NoError(t, setup.Data.Validate())
		}
	})
}
