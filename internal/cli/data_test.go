package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/producers/data"
)

// inspected runs weir data.
func inspected(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := (&app{doors: builtin.Doors(), console: console{out: &out, err: &errs}}).rootCommand()
	cmd.SetArgs(append([]string{"data"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestDataSaysWhatFilesHoldAndConvertsThem(t *testing.T) {
	t.Parallel()
	plus, minus := filepath.Join(root, "examples", "own-data", "plus.jsonl"), filepath.Join(root, "examples", "own-data", "minus.parquet")
	out, _, err := inspected(t, plus, minus)
	require.NoError(t, err)
	for _, want := range []string{
		"plus.jsonl: 100 rows, columns answer, level, question, source", "minus.parquet: 55 rows, columns ability, data_source, extra_info, prompt, reward_model",
		"schema      plain 100, verl 55", "sources     plus 100, minus 55", "splits      not named 100, train", "duplicates  0 to the letter", "155 difficulties",
		"minus.parquet:1   id q", "question  what is zero minus zero ?", "answers   zero",
	} {
		require.Contains(t, out, want)
	}
	to := filepath.Join(t.TempDir(), "both.parquet")
	_, errs, err := inspected(t, plus, minus, "--to", to, "--as", "verl")
	require.NoError(t, err)
	require.Contains(t, errs, "wrote 155 rows to "+to)
	out, _, err = inspected(t, to, "--json")
	require.NoError(t, err)
	var d data.Description
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, map[string]int{"plus": 100, "minus": 55}, d.Sources)
	require.Equal(t, 155, d.Difficulties)
	_, _, err = inspected(t, minus, "--to", to)
	require.ErrorContains(t, err, "it is there already")
	back := filepath.Join(t.TempDir(), "minus.jsonl")
	_, _, err = inspected(t, minus, "--to", back)
	require.NoError(t, err)
	lines, err := os.ReadFile(back)
	require.NoError(t, err)
	require.Equal(t, 55, bytes.Count(lines, []byte("\n")))
	require.Contains(t, string(lines), `"reward_model":{"ground_truth":"zero","style":"rule"}`)
}

func TestDataTellsFaults(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"question\": \"a\\u001b[2J\", \"answer\": \"b\"}\n{\"question\": \"c\"}\n"), 0o600))
	out, _, err := inspected(t, path)
	require.NoError(t, err)
	require.Contains(t, out, "faults      1 rows, the first:\n  "+path+":2: no answer")
	require.NotContains(t, out, "\x1b", "a file does not speak to the terminal")
	_, _, err = inspected(t, path, "--to", path+".parquet")
	require.ErrorContains(t, err, "1 rows have faults")
	for args, want := range map[string]string{"--as=csv": "--as csv: want same, verl or plain", "--schema=x": `--schema: "x": want auto`, "--column=x=y": "columns.x: no role"} {
		_, _, err = inspected(t, path, args)
		require.ErrorContains(t, err, want)
	}
	_, _, err = inspected(t, "nowhere.parquet")
	require.ErrorContains(t, err, "nowhere.parquet")
	spoilt := filepath.Join(t.TempDir(), "spoilt.parquet")
	require.NoError(t, os.WriteFile(spoilt, []byte("PAR1\x00\x00PAR1"), 0o600))
	_, _, err = inspected(t, spoilt)
	require.ErrorContains(t, err, "spoilt.parquet: ")
}
