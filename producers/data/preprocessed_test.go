package data

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files of testdata/preprocessed have the columns that published scripts write, by pyarrow 26, in its types, pages and compressions: VerlTool's
// examples/data_preprocess/acecoder.py, deepcoder.py, mathcoder.py, mcp_gsm8k.py, skysql/prepare_train.py and wikiQA.py (980962b, 2026-06-08) and verl's
// preprocess_search_r1_dataset.py and gsm8k_multiturn_w_tool.py of the same tree, Agent-R1's gsm8k_tool.py (6dc8f67, 2026-04-27). The texts in them are this project's own, and every answer has the word SECRET.
func TestFilesOfPublishedScriptsAreReadAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		hidden  string
		world   string
		tools   []string
	}{
		"acecoder":        {hidden: `{"code": ["assert f(1) == 1, 'SECRET'"]}`, world: `{"extra_info": {"index": 0, "id": "a0"}}`},
		"deepcoder":       {hidden: `{"tests": [{"input": "1\n", "output": "1 0 SECRET\n"}]}`, world: `{"extra_info": {"index": 0, "id": "d0"}}`},
		"mathcoder":       {hidden: `{"code": ["assert g(1) == 2, 'SECRET'"]}`, world: `{"extra_info": {"index": 0, "id": "m0"}}`},
		"mcp_gsm8k":       {answers: []string{"0 SECRET"}, world: `{"extra_info": {"hf_split": "train", "hf_index": 0, "use_specified_server": true, "mcp_servers": [{"name": "calculator"}]}}`},
		"skysql":          {answers: []string{"SELECT 0 -- SECRET"}, world: `{"extra_info": {"db_id": "shop", "db_path": "databases/shop.sqlite", "index": 0}}`},
		"wikiqa":          {answers: []string{"Paris SECRET", "paris SECRET"}, world: `{"extra_info": {"index": 0, "id": 0, "url": "https://example.org/wiki"}}`},
		"search_r1":       {answers: []string{"Paris SECRET"}, tools: []string{"search"}, world: `{"tools_kwargs": {"search": {"create_kwargs": {"question": "q", "data_source": "searchR1_nq"}}}, "extra_info": {"index": 0}}`},
		"agent_r1":        {answers: []string{"0 SECRET"}, tools: []string{"calc_gsm8k_reward"}, world: `{"extra_info": {"index": 0}}`},
		"gsm8k_multiturn": {answers: []string{"0 SECRET"}, tools: []string{"calc_gsm8k_reward"}, world: `{"extra_info": {"index": 0, "interaction_kwargs": {"query": "q"}}}`},
	} {
		var rows []*Example
		for e, err := range (Mapping{}).Read(t.Context(), filepath.Join("testdata", "preprocessed", name+".parquet")) {
			require.NoError(t, err, name)
			rows = append(rows, e)
		}
		require.Len(t, rows, 2, name)
		e := rows[0]
		require.Equal(t, c.answers, e.Answers, name)
		if c.hidden == "" {
			require.Empty(t, e.Hidden, name)
		} else {
			require.JSONEq(t, c.hidden, string(e.Hidden), name)
		}
		require.JSONEq(t, c.world, string(e.World), name)
		require.Equal(t, c.tools, e.Tools, name)
	}
}

func TestKeysOfAnswers(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"answer", "Answer", "gt", "gt_sql", "goldSQL", "targetAnswer", "inputs_outputs", "public_tests", "test_cases", "reference-answer", "full_solution", "validation_calls", "expected_output", "ground_truth", "reward_model"} {
		require.True(t, holdsAnswer(key), key)
	}
	for _, key := range []string{"index", "id", "db_path", "digits", "width", "labels.csv", "tests/test_add.py", "question", "top_k", "files", "script", "height", "agent"} {
		require.False(t, holdsAnswer(key), key)
	}
}

// Agent-R1 gives tools_kwargs to every tool that the row lists: its keys are arguments and no tools.
func TestArgumentsOfEveryTool(t *testing.T) {
	t.Parallel()
	e, err := one(t, Mapping{}, `{"prompt": "q", "reward_model": {"ground_truth": "SECRET"}, "env_kwargs": "{\"tools\": [\"search\", \"final_answer\"], \"tools_kwargs\": {\"ground_truth\": {\"target\": [\"SECRET\"]}, \"depth\": 2, \"final_answer\": {\"style\": \"short\", \"expected\": \"SECRET\"}}}"}`)
	require.NoError(t, err)
	require.Equal(t, []string{"final_answer", "search"}, e.Tools)
	require.JSONEq(t, `{"tools_kwargs": {"depth": 2, "final_answer": {"style": "short"}}}`, string(e.World))
}

// What stands in extra_info is read as tests where a row has no answer, or where columns.tests names it: data sets that mix programs with other
// questions have an empty column there, or one in another form.
func TestAnAnsweredRowIsNotReadByItsExtraInfo(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{`"test_cases": []`, `"inputs_outputs": ""`, `"inputs_outputs": "{\"inputs\": [], \"outputs\": []}"`, `"test_cases": [{"stdin": "1", "stdout": "2"}]`, `"test_cases": 3`} {
		row := `{"prompt": "q", "reward_model": {"ground_truth": "42"}, "extra_info": {` + extra + `}}`
		e, err := one(t, Mapping{}, row)
		require.NoError(t, err, extra)
		require.Equal(t, []string{"42"}, e.Answers, extra)
		require.Empty(t, e.Hidden, extra)
		_, err = one(t, Mapping{}, `{"prompt": "q", "reward_model": {"ground_truth": ""}, "extra_info": {`+extra+`}}`)
		require.ErrorContains(t, err, "extra_info", extra)
	}
	e, err := one(t, Mapping{Columns: map[string]string{"tests": "extra_info.test_cases"}},
		`{"prompt": "q", "reward_model": {"ground_truth": "42"}, "extra_info": {"test_cases": ["assert f(1) == 1"]}}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"code": ["assert f(1) == 1"]}`, string(e.Hidden))
}
