package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers/data/table"
	"github.com/weir-rl/weir/producers/tasks"
)

func write(t testing.TB, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

// one reads a single row.
func one(t testing.TB, m Mapping, row string) (*Example, error) {
	t.Helper()
	for e, err := range m.Read(t.Context(), write(t, "rows.jsonl", strings.ReplaceAll(row, "\n", " "))) {
		return e, err
	}
	return nil, errors.New("no row")
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row     string
		text    string
		answers []string
		id      string
		source  string
		split   tasks.Split
		meta    map[string]string
		world   string
		tools   []string
	}{
		"verl": {
			row: `{"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "1+1?"}], "ability": "math", "reward_model": {"style": "rule", "ground_truth": "2"},
				"extra_info": {"split": "test", "index": 7, "answer": "It is 2 #### 2", "question": "1+1?", "need_tools_kwargs": true,
				"tools_kwargs": {"calc": {"create_kwargs": {"ground_truth": "2", "digits": 4}}, "other": null}}}`,
			text: "1+1?", answers: []string{"2"}, source: "openai/gsm8k", split: tasks.Test, meta: map[string]string{"ability": "math"},
			world: `{"extra_info": {"index": 7}, "tools_kwargs": {"calc": {"create_kwargs": {"digits": 4}}}}`, tools: []string{"calc"},
		},
		"a conversation": {
			row: `{"data_source": "s", "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "?"}]}],
				"reward_model": {"ground_truth": 12345678901234567890}}`,
			text: "1?", answers: []string{"12345678901234567890"}, source: "s",
			meta: map[string]string{"messages": `[{"role":"system","content":"Think."},{"role":"user","content":"1?"}]`},
		},
		"search-r1": {
			row: `{"id": "train_0", "question": "who ?", "golden_answers": ["a"], "data_source": "nq", "prompt": [{"role": "user", "content": "Answer: who ?"}],
				"ability": "fact-reasoning", "reward_model": {"style": "rule", "ground_truth": {"target": ["a", "b"]}}, "extra_info": {"index": 0, "split": "train"}}`,
			text: "Answer: who ?", answers: []string{"a", "b"}, source: "nq", split: tasks.Train, meta: map[string]string{"ability": "fact-reasoning"},
			world: `{"extra_info": {"index": 0}}`,
		},
		"agent-r1": {
			row: `{"data_source": "hotpot", "prompt": [{"role": "user", "content": "who ?"}], "reward_model": {"ground_truth": "a"}, "agent_name": "tool_agent",
				"env_kwargs": "{\"env_type\": \"nous\", \"tools\": [\"search\"], \"tools_kwargs\": {\"search\": {\"top_k\": 3}}}", "extra_info": {"split": "val"}}`,
			text: "who ?", answers: []string{"a"}, source: "hotpot", split: tasks.Validation,
			world: `{"tools_kwargs": {"search": {"top_k": 3}}}`, tools: []string{"search"},
		},
		"hotpotqa": {
			row:  `{"_id": "5a", "question": "who ?", "answer": "a", "type": "bridge", "level": "hard", "supporting_facts": [["T", 0]], "context": [["T", ["One. ", "Two."]], ["", ["x"]]]}`,
			text: "who ?", answers: []string{"a"}, id: "rows/5a", source: "rows", meta: map[string]string{"type": "bridge", "level": "hard"},
		},
		"gsm8k": {
			row:  `{"question": "How many?", "answer": "48/2 = <<48/2=24>>24.\n#### 1,272"}`,
			text: "How many?", answers: []string{"1272"}, source: "rows",
		},
		"math": {
			row:  `{"problem": "Half?", "solution": "So $\\boxed{1}$, no: \\boxed{\\frac{1}{2}}.", "level": "Level 3", "type": "Algebra"}`,
			text: "Half?", answers: []string{`\frac{1}{2}`}, source: "rows", meta: map[string]string{"type": "Algebra", "level": "Level 3"},
		},
		"plain": {
			row:  `{"id": 3, "query": "2+2?", "answer": 4, "source": "sums", "split": "dev"}`,
			text: "2+2?", answers: []string{"4"}, id: "sums/3", source: "sums", split: tasks.Validation,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := one(t, Mapping{}, c.row)
			require.NoError(t, err)
			require.Equal(t, c.text, e.Text)
			require.Equal(t, c.answers, e.Answers)
			require.Equal(t, c.source, e.Source)
			require.Equal(t, c.split, e.Split)
			require.Equal(t, c.meta, e.Meta)
			require.Equal(t, c.tools, e.Tools)
			if c.id != "" {
				require.Equal(t, c.id, e.ID)
			} else {
				require.Regexp(t, "^q[0-9a-z]+$", e.ID)
			}
			if c.world == "" {
				require.Nil(t, e.World)
			} else {
				require.JSONEq(t, c.world, string(e.World))
			}
			if name == "hotpotqa" {
				require.Equal(t, []tasks.Passage{{Title: "T", Text: "One. Two."}}, e.Passages)
				require.InDelta(t, 2, *e.Difficulty, 0)
			}
		})
	}
	hub, err := one(t, Mapping{}, `{"id": "x", "question": "q", "answer": "a", "context": {"title": ["T"], "sentences": [["One."]]}}`)
	require.NoError(t, err)
	require.Equal(t, []tasks.Passage{{Title: "T", Text: "One."}}, hub.Passages)
}

func TestHiddenTests(t *testing.T) {
	t.Parallel()
	both := `{"tests":[{"input":"1\n","output":"2\n"},{"input":[3],"output":4}]`
	for row, want := range map[string]string{
		`{"question": "q", "tests": [{"input": "1\n", "output": "2\n"}, {"input": [3], "output": 4}]}`:                                                                              both + "}",
		`{"prompt": "q", "data_source": "s", "ability": "code", "reward_model": {"ground_truth": "{\"inputs\": [\"1\\n\", [3]], \"outputs\": [\"2\\n\", 4], \"fn_name\": \"f\"}"}}`: both + `,"entry":"f"}`,
		`{"text": "q", "test_list": ["assert f(1) == 2"], "code": "x"}`:                                                                                                             `{"code":["assert f(1) == 2"]}`,
		`{"question": "q", "test": "def check(f):\n  assert f(1)", "entry_point": "f"}`:                                                                                             `{"entry":"f","code":["def check(f):\n  assert f(1)"]}`,
	} {
		e, err := one(t, Mapping{}, row)
		require.NoError(t, err, row)
		require.JSONEq(t, want, string(e.Hidden), row)
		require.Empty(t, e.Answers)
		require.NotContains(t, string(e.World), "1", "tools see no test")
	}
}

// Invariant: what a prompt gives to tools never holds the answers.
func TestInvariantWhatAPromptGivesToToolsNeverHoldsTheAnswers(t *testing.T) {
	t.Parallel()
	e, err := one(t, Mapping{}, `{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "SECRET"}, "extra_info": {"Answer": "SECRET", "index": 1,
		"interaction_kwargs": {"name": "n", "ground_truth": "SECRET"}, "tools_kwargs": {"t": {"create_kwargs": [{"solution": "SECRET", "k": 1}]}, "u": {"create_kwargs": {"target": "SECRET"}}}}}`)
	require.NoError(t, err)
	require.NotContains(t, string(e.World), "SECRET")
	require.Contains(t, string(e.World), `"k":1`)
	require.Equal(t, []string{"t", "u"}, e.Tools, "a tool is named by a row though nothing of its arguments is left")
}

// Weir's own tools find what a row gives them, whichever tool it stands with.
func TestWhatARowGivesToToolsOfWeirs(t *testing.T) {
	t.Parallel()
	row := func(kwargs string) string {
		return `{"prompt": "q", "reward_model": {"ground_truth": "a"}, "env_kwargs": {"tools_kwargs": ` + kwargs + `}}`
	}
	e, err := one(t, Mapping{}, row(`{"sql": {"create_kwargs": {"script": "CREATE TABLE t (x)"}}, "shell": {"files": {"a": "1", "b": "2"}}, "python": {"create_kwargs": {"files": {"b": "2", "c": "3"}}}}`))
	require.NoError(t, err)
	var world struct {
		Files  map[string]string
		Script string
		Kwargs map[string]any `json:"tools_kwargs"`
	}
	require.NoError(t, json.Unmarshal(e.World, &world))
	require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "3"}, world.Files)
	require.Equal(t, "CREATE TABLE t (x)", world.Script)
	require.Len(t, world.Kwargs, 3, "what servers of others' protocols are given stays as it was")
	require.Equal(t, []string{"python", "shell", "sql"}, e.Tools)

	_, err = one(t, Mapping{}, row(`{"a": {"files": {"x": "1"}}, "b": {"files": {"x": "2"}}}`))
	require.ErrorContains(t, err, `tools_kwargs.b.files: "x": another tool of the row is given another one`)
	_, err = one(t, Mapping{}, row(`{"a": {"database": "x"}, "b": {"database": "y"}}`))
	require.ErrorContains(t, err, "tools_kwargs.b.database: another tool of the row is given another one")
	e, err = one(t, Mapping{}, row(`{"a": {"files": {"solution": "SECRET", "x": "1"}}}`))
	require.NoError(t, err)
	require.NotContains(t, string(e.World), "SECRET")
}

func TestRowFaults(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		`{"prompt": [], "reward_model": {"ground_truth": "a"}}`:                                          "prompt: an empty list: want a list of messages",
		`{"prompt": [{"role": "robot", "content": "q"}], "reward_model": {"ground_truth": "a"}}`:         `prompt[0].role: "robot": want system, user or assistant`,
		`{"prompt": [{"role": "assistant", "content": "q"}], "reward_model": {"ground_truth": "a"}}`:     "prompt: the last message is the assistant's",
		`{"prompt": [{"role": "user", "content": [{"type": "image"}]}], "reward_model": {"style": "x"}}`: `prompt[0].content: [0]: a part of type "image": only text is read`,
		`{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"style": "rule"}}`:              "no answer: there is no column reward_model.ground_truth",
		`{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": {"a": 1}}}`:     "reward_model.ground_truth: an object: want text",
		`{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": ["a", []]}}`:    "reward_model.ground_truth[1]: a list: want text",
		`{"question": "q", "answer": " "}`:                                                               "answer: answer 1 is empty",
		`{"question": "q", "answers": []}`:                                                               "answers: no answer in it",
		`{"question": " ", "answer": "a"}`:                                                               "question: missing or empty",
		`{"ask": "q", "answer": "a"}`:                                                                    "no question: there is no column question, problem",
		`{"question": 7, "answer": "a", "split": "trial"}`:                                               `split: "trial": want train, validation or test`,
		`{"problem": "q", "solution": "none"}`:                                                           `solution: no \boxed{} with the answer`,
		`{"question": "q", "answer": "a", "pass_rate": 1.5}`:                                             `pass_rate: "1.5": want a share from 0 to 1`,
		`{"question": "q", "answer": "a", "tools": [1]}`:                                                 "tools: [0]: a number: want a tool's name",
		`{"question": "q", "tests": {"inputs": [1], "outputs": []}}`:                                     "tests: 1 inputs and 0 outputs",
		`{"question": "q", "answer": "a", "context": [["T"]]}`:                                           "context[0]: a list: want [title, [sentence, ...]]",
		`{"question": {"a": 1}, "answer": "a"}`:                                                          "question: an object: want text",
		`{"prompt": "q", "reward_model": {"ground_truth": "a"}, "env_kwargs": "{"}`:                      "env_kwargs: not JSON",
	} {
		_, err := one(t, Mapping{}, row)
		var fault *table.FaultError
		require.ErrorAs(t, err, &fault, row)
		require.Equal(t, 1, fault.At)
		require.ErrorContains(t, err, "rows.jsonl:1: "+want)
	}
	_, err := one(t, Mapping{Columns: map[string]string{"answer": "gold.text"}}, `{"question": "q", "answer": "a"}`)
	require.ErrorContains(t, err, "gold.text: there is no such column, and columns.answer names it")
	e, err := one(t, Mapping{Schema: GSM8K, Columns: map[string]string{"question": "q.text", "meta_kind": "k"}}, `{"q": {"text": "1?"}, "answer": "#### 5", "k": [1]}`)
	require.NoError(t, err)
	require.Equal(t, "1?", e.Text)
	require.Equal(t, map[string]string{"kind": "[1]"}, e.Meta)
	require.ErrorContains(t, Mapping{Schema: "sharegpt"}.Validate(), `schema: "sharegpt": want auto, verl`)
	require.ErrorContains(t, Mapping{Columns: map[string]string{"reply": "x"}}.Validate(), "columns.reply: no role of a column: want ability, answer")
	require.ErrorContains(t, Mapping{Columns: map[string]string{"answer": ""}}.Validate(), "columns.answer: empty")
}

func load(t testing.TB, change func(*Config), lines ...string) (*Loaded, error) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Files = []string{write(t, "rows.jsonl", lines...)}
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	return cfg.Load(t.Context(), func(text string) int { return len(strings.Fields(text)) })
}

func rows(n int, format string) []string {
	var out []string
	for i := range n {
		out = append(out, strings.ReplaceAll(format, "%", fmt.Sprint(i)))
	}
	return out
}

func bySplit(examples []*Example) map[string]tasks.Split {
	out := map[string]tasks.Split{}
	for _, e := range examples {
		out[e.Text] = e.Split
	}
	return out
}

// A row stays in its split whatever happens to the others, and however it is spelt.
func TestSplitsAreStable(t *testing.T) {
	t.Parallel()
	lines := rows(2000, `{"question": "Question %?", "answer": "a"}`)
	all, err := load(t, nil, lines...)
	require.NoError(t, err)
	count := map[tasks.Split]int{}
	for _, s := range bySplit(all.Examples) {
		count[s]++
	}
	require.InDelta(t, 200, count[tasks.Validation], 60)
	require.InDelta(t, 200, count[tasks.Test], 60)
	some, err := load(t, func(c *Config) { c.Filter.Reject = "7" }, append(lines[1000:], lines[:500]...)...)
	require.NoError(t, err)
	was := bySplit(all.Examples)
	for text, split := range bySplit(some.Examples) {
		require.Equal(t, was[text], split, text)
	}
	shouted, err := load(t, nil, rows(200, `{"question": "QUESTION  %", "answer": "b"}`)...)
	require.NoError(t, err)
	for i, e := range shouted.Examples {
		require.Equal(t, was[fmt.Sprintf("Question %d?", i)], e.Split, "the same question in other letters")
	}
	salted, err := load(t, func(c *Config) { c.Split.Salt = "2" }, lines...)
	require.NoError(t, err)
	require.NotEqual(t, was, bySplit(salted.Examples))
	grouped, err := load(t, func(c *Config) { c.Columns = map[string]string{"group": "g"} }, rows(300, `{"question": "%", "answer": "a", "g": "one"}`)...)
	require.NoError(t, err)
	splits := map[tasks.Split]bool{}
	for _, e := range grouped.Examples {
		splits[e.Split] = true
	}
	require.Len(t, splits, 1, "rows of one group are in one split")
	named, err := load(t, nil, append(rows(1000, `{"question": "n%", "answer": "a", "split": "train"}`), `{"question": "t", "answer": "a", "split": "test"}`)...)
	require.NoError(t, err)
	d := named.Dataset("x")
	require.InDelta(t, 100, len(d.Questions[tasks.Validation]), 40, "validation is taken from train where no row names it")
	require.Len(t, d.Questions[tasks.Test], 1)
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"question": "Who?", "answer": "a", "split": "train"}`, `{"question": "Who?", "answer": "a", "split": "test"}`,
		`{"question": "who", "answer": "b", "split": "train"}`, `{"question": "else", "answer": "c", "split": "train"}`, `{"question": "v", "answer": "c", "split": "validation"}`,
	}
	exact, err := load(t, nil, lines...)
	require.NoError(t, err)
	require.Equal(t, Left{Duplicates: 1, FromTrain: 1}, exact.Left)
	require.Equal(t, map[string]tasks.Split{"Who?": tasks.Test, "who": tasks.Train, "else": tasks.Train, "v": tasks.Validation}, bySplit(exact.Examples))
	normalized, err := load(t, func(c *Config) { c.Dedupe = DedupeNormalized }, lines...)
	require.NoError(t, err)
	require.Equal(t, Left{Duplicates: 2, FromTrain: 2, Conflicting: 1}, normalized.Left)
	require.Equal(t, "2 duplicates, 2 of them in train of what validation or test asks, 1 of them with other answers", normalized.Left.String())
	none, err := load(t, func(c *Config) { c.Dedupe = DedupeNone }, lines...)
	require.NoError(t, err)
	require.Len(t, none.Examples, 5)
	require.NoError(t, none.Dataset("x").Validate(), "the ids are distinct")
	_, err = load(t, nil, `{"id": 1, "question": "a", "answer": "a"}`, `{"id": 1, "question": "b", "answer": "a"}`)
	require.ErrorContains(t, err, `rows.jsonl:2: id "rows/1": `)
}

func TestFiltersAndLimits(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"question": "a b c", "answer": "x", "source": "s"}`, `{"question": "a b c d e", "answer": "x", "source": "s"}`, `{"question": "a", "answer": "x", "source": "s"}`,
		`{"question": "z b c", "answer": "x", "source": "s"}`, `{"question": "a b y", "answer": "x", "source": "s"}`, `{"question": "a b z", "answer": "x", "source": "t"}`,
	}
	got, err := load(t, func(c *Config) {
		c.Filter.MinChars, c.Filter.MaxTokens, c.Filter.Match, c.Filter.Reject, c.Filter.SkipSources = 2, 4, "^a", "y$", []string{"t"}
	}, lines...)
	require.NoError(t, err)
	require.Len(t, got.Examples, 1)
	require.Equal(t, Left{Short: 1, Long: 1, Unmatched: 2, Source: 1}, got.Left)
	_, err = load(t, func(c *Config) { c.Filter.Match = "nothing" }, lines...)
	require.ErrorContains(t, err, "no row is left to ask: left out are 6 not matched")

	many := rows(200, `{"question": "%", "answer": "x", "split": "train"}`)
	few, err := load(t, func(c *Config) { c.Limit.Train = 10; c.Split.Validation = 0 }, many...)
	require.NoError(t, err)
	more, err := load(t, func(c *Config) { c.Limit.Train = 50; c.Split.Validation = 0 }, many...)
	require.NoError(t, err)
	require.Len(t, few.Examples, 10)
	require.Len(t, more.Examples, 50)
	kept := bySplit(more.Examples)
	for _, e := range few.Examples {
		require.Contains(t, kept, e.Text, "a greater limit keeps what a smaller one kept")
	}
	bad := DefaultConfig()
	bad.Filter.Match, bad.Split.Test, bad.Dedupe, bad.Limit.Test = "(", 95, "fuzzy", -1
	for _, want := range []string{"files: none", "filter.match: error parsing regexp", "split.test: 95", "dedupe: unknown", "rows.test: -1"} {
		require.ErrorContains(t, bad.Validate(), want)
	}
}

func TestFaultyRowsAreRefusedOrLeftOut(t *testing.T) {
	t.Parallel()
	lines := []string{`{"question": "a", "answer": "x"}`, `{"question": "b"}`, `{`}
	_, err := load(t, nil, lines...)
	require.ErrorContains(t, err, "rows.jsonl:2: no answer")
	require.ErrorContains(t, err, "rows.jsonl:3: not JSON")
	got, err := load(t, func(c *Config) { c.Faults = FaultSkip }, lines...)
	require.NoError(t, err)
	require.Len(t, got.Examples, 1)
	require.Equal(t, 2, got.Left.Faulty)
	require.Len(t, got.Skipped, 2)
	_, err = load(t, nil, rows(20, `{"question": "%"}`)...)
	require.ErrorContains(t, err, "too many bad rows: the rest is not read; faults: skip leaves them out")
	_, err = load(t, func(c *Config) { c.Files = []string{"nowhere.parquet"} })
	require.ErrorContains(t, err, "nowhere.parquet")
}

func TestParquetAndJSONLReadAlike(t *testing.T) {
	t.Parallel()
	text := `{"data_source": "s", "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}], "reward_model": {"ground_truth": ["2", "two"]},
		"extra_info": {"index": 3, "tools_kwargs": {"a": {"k": 1}, "b": null}}}`
	row, err := table.Object([]byte(text))
	require.NoError(t, err)
	other, err := table.Object([]byte(strings.NewReplacer(`"q"`, `"r"`, `"a": {"k": 1}, "b": null`, `"a": null, "b": {"k": 2}`).Replace(text)))
	require.NoError(t, err)
	dir := t.TempDir()
	var read [2][]*Example
	for i, name := range []string{"f.jsonl", "f.parquet"} {
		path := filepath.Join(dir, name)
		require.NoError(t, table.Write(path, []map[string]any{row, other}))
		for e, err := range (Mapping{}).Read(t.Context(), path) {
			require.NoError(t, err)
			e.File = ""
			read[i] = append(read[i], e)
		}
	}
	require.Equal(t, []string{"a"}, read[1][0].Tools, "a tool whose column is null in a row is not named by it")
	require.Equal(t, read[0][1].Prompt.Text, read[1][1].Prompt.Text)
	for i := range read[0] {
		require.JSONEq(t, string(read[0][i].World), string(read[1][i].World))
		read[0][i].World, read[1][i].World = nil, nil
		require.Equal(t, read[0][i], read[1][i])
	}
}

func FuzzRow(f *testing.F) {
	for _, row := range []string{
		`{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "a"}, "extra_info": {"tools_kwargs": {"a": 1}}, "env_kwargs": "{}"}`,
		`{"question": "q", "answer": "#### 1"}`, `{"problem": "q", "solution": "\\boxed{{}"}`, `{"question": "q", "tests": "[{\"input\": 1, \"output\": 2}]"}`,
		`{"question": "q", "answer": "a", "context": {"title": [1], "sentences": [[1]]}}`, `{"id": [], "question": "q", "answer": {"target": [true]}}`,
	} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		fields, err := table.Object(row)
		if err != nil {
			return
		}
		e, err := Mapping{}.readExample("f", table.Row{At: 1, Fields: fields})
		if err != nil {
			var fault *table.FaultError
			require.ErrorAs(t, err, &fault)
			return
		}
		require.NotEmpty(t, strings.TrimSpace(e.Text))
		require.NotEmpty(t, e.ID)
		require.True(t, len(e.Answers) > 0 || json.Valid(e.Hidden))
		require.True(t, e.World == nil || json.Valid(e.World) && !bytes.Contains(e.World, []byte(`"ground_truth"`)))
	})
}

// LastBoxed against the plain way: every opening brace tried from the end.
func TestLastBoxed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`\boxed{1}`: "1", `a \boxed{\frac{1}{2}} b`: `\frac{1}{2}`, `\boxed{1} \boxed {2}`: "2", `\fbox{3}`: "3", `\boxed 4$ x`: "4", `\boxed{}`: "",
	} {
		got, ok := LastBoxed(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", `\boxed`, `\boxed{1`, `boxed{1}`} {
		_, ok := LastBoxed(text)
		require.False(t, ok, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune(`{}a\`)), 0, 12, -1).Draw(t, "text")
		if got, ok := LastBoxed(`\boxed{` + text + `}`); ok {
			require.Equal(t, strings.Count(got, "{"), strings.Count(got, "}"))
		}
	})
}
