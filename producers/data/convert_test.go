package data

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/data/table"
)

// Rows that are converted make the same prompts, in either schema and either format.
func TestConvertedRowsMakeTheSamePrompts(t *testing.T) {
	t.Parallel()
	source := write(t, "rows.jsonl",
		`{"data_source": "s", "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "one"}], "ability": "math", "reward_model": {"ground_truth": "1"}, "extra_info": {"split": "test", "index": 9, "difficulty": 2.5, "tools_kwargs": {"calc": {"digits": 12345678901}}}}`,
		`{"question": "two", "answers": ["2", "ii"], "source": "p", "split": "train", "pass_rate": 0.25}`,
		`{"question": "three", "answer": "#### 3"}`,
	)
	var want []*Example
	for e, err := range (Mapping{}).Read(t.Context(), source) {
		require.NoError(t, err)
		want = append(want, e)
	}
	for _, to := range []Schema{VeRL, Plain} {
		for _, ending := range []string{".jsonl", ".parquet"} {
			rows, err := Convert(want, to)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "out"+ending)
			require.NoError(t, table.Write(path, rows))
			i := 0
			for e, err := range (Mapping{}).Read(t.Context(), path) {
				require.NoError(t, err, "%s %s", to, ending)
				require.Equal(t, want[i].Text, e.Text)
				require.Equal(t, want[i].Answers, e.Answers)
				require.Equal(t, want[i].Source, e.Source)
				require.Equal(t, want[i].Split, e.Split)
				require.Equal(t, want[i].Meta, e.Meta)
				require.Equal(t, want[i].Tools, e.Tools)
				require.Equal(t, want[i].Difficulty, e.Difficulty)
				require.Equal(t, want[i].PassRate, e.PassRate)
				require.Equal(t, want[i].ID, e.ID, "it follows from the question")
				if i == 0 {
					require.Contains(t, string(e.World), "12345678901")
				}
				i++
			}
			require.Equal(t, len(want), i)
		}
	}
	_, err := Convert(want, Hotpot)
	require.ErrorContains(t, err, `schema "hotpotqa" is not written: want verl or plain`)
}

func TestHiddenTestsAreConverted(t *testing.T) {
	t.Parallel()
	e, err := one(t, Mapping{}, `{"id": 4, "question": "q", "tests": [{"input": "1", "output": "2"}], "entry_point": "f"}`)
	require.NoError(t, err)
	code, err := one(t, Mapping{}, `{"question": "q", "test_list": ["assert f(1)"]}`)
	require.NoError(t, err)
	_, err = Convert([]*Example{code}, VeRL)
	require.ErrorContains(t, err, "tests that are statements have no place in verl's schema")
	for _, c := range []struct {
		of *Example
		to Schema
	}{{e, VeRL}, {e, Plain}, {code, Plain}} {
		rows, err := Convert([]*Example{c.of}, c.to)
		require.NoError(t, err)
		back, err := Mapping{}.readExample("f", table.Row{At: 1, Fields: rows[0]})
		require.NoError(t, err)
		require.JSONEq(t, string(c.of.Hidden), string(back.Hidden))
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	first := write(t, "a.jsonl", `{"question": "one two", "answer": "1", "tools": ["t"]}`, `{"question": "One, two!", "answer": "1"}`, `{"question": "x"}`, `[]`)
	second := write(t, "b.jsonl", `{"problem": "three", "solution": "\\boxed{3}", "level": "Level 2"}`, `{"problem": "three", "solution": "\\boxed{3}"}`)
	var raw []map[string]any
	d, examples, err := Mapping{}.Describe(t.Context(), []string{first, second}, func(s string) int { return len(s) / 3 }, &raw)
	require.NoError(t, err)
	require.Len(t, examples, 4)
	require.Len(t, raw, 4)
	require.Equal(t, 4, d.Rows)
	require.Equal(t, 2, d.Faulty)
	require.Contains(t, d.Faults[0], "a.jsonl:3: no answer")
	require.Equal(t, map[string]int{"plain": 2, "math": 2}, d.Schemas)
	require.Equal(t, map[string]int{"a": 2, "b": 2}, d.Sources)
	require.Equal(t, map[string]int{"t": 1}, d.Tools)
	require.Equal(t, 1, d.Duplicates.Exact)
	require.Equal(t, 2, d.Duplicates.Normalized)
	require.Equal(t, Lengths{5, 5, 9, 9}, d.Characters)
	require.Equal(t, Lengths{1, 1, 3, 3}, *d.Tokens)
	require.Equal(t, []string{"level", "problem", "solution"}, d.Files[1].Columns)
	require.Equal(t, 1, d.Difficulties)
	_, _, err = Mapping{}.Describe(t.Context(), []string{"nowhere"}, nil, nil)
	require.Error(t, err)
	// Of a conversation what its messages hold is measured, and not the JSON that they are kept in.
	talk := write(t, "c.jsonl", `{"prompt": [{"role": "system", "content": "<a>"}, {"role": "user", "content": "four"}], "answer": "4"}`)
	d, _, err = Mapping{}.Describe(t.Context(), []string{talk}, func(s string) int { return strings.Count(s, "<") }, nil)
	require.NoError(t, err)
	require.Equal(t, Lengths{8, 8, 8, 8}, d.Characters)
	require.Equal(t, Lengths{1, 1, 1, 1}, *d.Tokens)
}
