package corpus

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/tasks"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	corpus := write("corpus.jsonl", `{"title": "a", "text": "a is b."}`)
	questions := write("questions.jsonl", `{"question": "what is a ?", "answers": ["b"], "split": "train", "source": "1", "id": "x"}`)
	d, err := Load("mine", corpus, questions)
	require.NoError(t, err)
	require.Equal(t, "what is a ?", d.Questions[tasks.Train][0].Text)

	_, err = Load("mine", filepath.Join(dir, "none"), write("bad.jsonl", "{}"))
	require.ErrorContains(t, err, "none: no such file")
	require.ErrorContains(t, err, "bad.jsonl:1: question: missing or empty")
	_, err = Load("mine", corpus, write("test.jsonl", `{"question": "what is a ?", "answers": ["b"], "split": "test"}`))
	require.ErrorContains(t, err, "the train split has no question")
}
