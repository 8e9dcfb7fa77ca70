package table

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
)

// PyArrow reads what is written: lists of objects, missing values, integers beyond a float, and text of any language.
func TestPyArrowReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "pyarrow.parquet")
	rows := []map[string]any{
		{"id": json.Number("9007199254740993"), "prompt": []any{map[string]any{"role": "user", "content": "zwölf 十二"}}, "reward_model": map[string]any{"ground_truth": "12"}, "share": json.Number("0.25")},
		{"id": json.Number("2"), "prompt": []any{map[string]any{"role": "system", "content": "S"}, map[string]any{"role": "user", "content": "q"}}, "reward_model": map[string]any{"ground_truth": ""}, "extra": []any{"a", "b"}},
	}
	path := filepath.Join(t.TempDir(), "rows.parquet")
	require.NoError(t, Write(path, rows))
	require.JSONEq(t, `[
		{"id": 9007199254740993, "prompt": [{"role": "user", "content": "zwölf 十二"}], "reward_model": {"ground_truth": "12"}, "share": 0.25, "extra": null},
		{"id": 2, "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}], "reward_model": {"ground_truth": ""}, "share": null, "extra": ["a", "b"]}
	]`, realpython.Run(t, python, "testdata/published.py", path))
}
