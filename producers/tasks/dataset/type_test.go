package dataset

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestOpen(t *testing.T) {
	t.Parallel()
	cfg := Type().Config().(*Config)
	require.ErrorContains(t, cfg.Validate(), "files: none: name a JSONL or Parquet file")
	cfg.Order.Prompts = 0
	require.ErrorContains(t, cfg.Validate(), "order.prompts: 0")
	cfg.Order.Prompts = 10
	cfg.TrainFiles = []string{file(t, "train.jsonl", `{"_id": "1", "question": "who was first ?", "answer": "ann", "context": [["Ann", ["Ann was first."]]]}
{"_id": "2", "question": "who was last ?", "answer": "bob", "context": [["Ann", ["Ann was first."]], ["Bob", ["Bob was last."]]], "tools": ["search"]}
{"_id": "3", "question": "who was last ?", "answer": "bob", "context": []}
`)}
	cfg.Split.Validation = 0
	cfg.Corpus = file(t, "corpus.jsonl", `{"title": "cid", "text": "cid was late."}`)
	cfg.Demonstrations = file(t, "demos.jsonl", `{"question": "who was first ?", "answer": "ann"}`)
	require.NoError(t, cfg.Validate())
	var log bytes.Buffer
	s, err := Type().Open(t.Context(), tasks.Opening{Name: "hot", Config: cfg, Seed: 3, Texts: []string{"nothing"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.Equal(t, "hot", s.Data.Name)
	require.Equal(t, []tasks.Passage{{Title: "Ann", Text: "Ann was first."}, {Title: "Bob", Text: "Bob was last."}, {Title: "cid", Text: "cid was late."}}, s.Data.Passages)
	require.Len(t, s.Data.Questions[tasks.Train], 2)
	require.Contains(t, log.String(), "1 duplicates")
	require.NotNil(t, s.Demonstrations)
	for _, word := range []string{"first", "late", "nothing"} {
		_, known := s.Tokenizer.ID(word)
		require.True(t, known, word)
	}
	asked := map[string]bool{s.Order.Prompt(0).ID: true, s.Order.Prompt(1).ID: true}
	require.Equal(t, map[string]bool{"train/1": true, "train/2": true}, asked)

	again, err := Type().Open(t.Context(), tasks.Opening{Name: "hot", Config: cfg, Seed: 3, Tokenizer: s.Tokenizer, Texts: []string{"nothing"}})
	require.NoError(t, err)
	require.Same(t, s.Tokenizer, again.Tokenizer, "the run's comes first")

	cfg.Filter.MaxTokens = 3
	_, err = Type().Open(t.Context(), tasks.Opening{Name: "hot", Config: cfg})
	require.ErrorContains(t, err, "filter.max_tokens: the task's tokenizer is made of its words")
	cfg.Tokenizer = "nowhere.json"
	_, err = Type().Open(t.Context(), tasks.Opening{Name: "hot", Config: cfg})
	require.ErrorContains(t, err, "tokenizer: ")
	_, err = Type().Open(t.Context(), tasks.Opening{Name: "hot", Config: 3})
	require.ErrorContains(t, err, "want *dataset.Config")
}

// A row that names a tool which its episodes cannot call is refused when the run begins.
func TestUnknownToolsAreRefused(t *testing.T) {
	t.Parallel()
	cfg := Type().Config().(*Config)
	cfg.TrainFiles = []string{file(t, "train.jsonl", `{"question": "a", "answer": "b", "tools": ["search"]}
{"question": "c", "answer": "d", "tools_kwargs": {"calculator": {"digits": 3}}}
`)}
	s, err := Type().Open(t.Context(), tasks.Opening{Name: "hot", Config: cfg})
	require.NoError(t, err)
	require.NoError(t, s.Check([]producers.ToolSpec{{Name: "calculator"}, {Name: "search"}}))
	require.ErrorContains(t, s.Check([]producers.ToolSpec{{Name: "search"}}), `train.jsonl:2: tool "calculator": the task has search`)
	require.ErrorContains(t, s.Check(nil), `train.jsonl:1: tool "search": the task has none`)
}
