package tasks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadCorpus(t *testing.T) {
	got, err := ReadCorpus("c.jsonl", strings.NewReader(`{"title": "a", "text": "a is b."}

{"title": "c", "text": "c is d."}`))
	require.NoError(t, err)
	require.Equal(t, []Passage{{"a", "a is b."}, {"c", "c is d."}}, got)
}

func TestBadRowsAreNamed(t *testing.T) {
	good := `{"question": "q ?", "answers": ["a"]}` + "\n"
	for row, want := range map[string]string{
		`{"question": "q2 ?"}`:                                        "q.jsonl:2: answers: missing or empty",
		`{"question": " ", "answers": ["a"]}`:                         "q.jsonl:2: question: missing or empty",
		`{"question": "q2 ?", "answers": ["a", ""]}`:                  "q.jsonl:2: answers[1]: missing or empty",
		`{"question": "q2 ?", "answers": "a"}`:                        "q.jsonl:2: answers: string: want a list, each entry a string",
		`{"question": "q2 ?", "answer": "a"}`:                         "q.jsonl:2: answer: unknown key: want id, question, answers, source, split",
		`["q2 ?"]`:                                                    "q.jsonl:2: array: want an object with the keys id, question, answers, source, split",
		`{"question": 7, "answers": ["a"]}`:                           "q.jsonl:2: question: number: want a string",
		`{question: "q2 ?"}`:                                          "q.jsonl:2: not JSON at byte 2: invalid character 'q'",
		`{"question": "q2 ?", "answers": ["a"]} {}`:                   "q.jsonl:2: more than one JSON value",
		`{"question": "q2 ?", "answers"`:                              "q.jsonl:2: the line ends within its JSON object",
		`{"question": "q2 ?", "answers": ["a"], "split": "dev"}`:      `q.jsonl:2: split: "dev": must be train, validation or test`,
		`{"question": "q2 ?", "answers": ["a"], "split": "train"}`:    "q.jsonl:2: split: some rows name one and others do not",
		`{"question": "q ?", "answers": ["b"]}`:                       "q.jsonl:2: id",
		"\xff":                                                        "q.jsonl:2: not UTF-8 text",
		`{"question": "` + strings.Repeat("x", maxRowBytes) + `"}`:    "q.jsonl:2: the line is longer than 1048576 bytes",
		`{"question": "", "answers": []}` + "\n" + `{"split": "dev"}`: "q.jsonl:3: question: missing or empty; answers: missing or empty; split",
	} {
		t.Run(want, func(t *testing.T) {
			_, err := ReadQuestions("q.jsonl", strings.NewReader(good+row))
			require.ErrorContains(t, err, want)
		})
	}
	_, err := ReadCorpus("c.jsonl", strings.NewReader(`{"title": "a"}`))
	require.ErrorContains(t, err, "c.jsonl:1: text: missing or empty")
	_, err = ReadCorpus("c.jsonl", strings.NewReader("\n"))
	require.ErrorContains(t, err, "c.jsonl: no passage in it")
	_, err = ReadQuestions("q.jsonl", strings.NewReader(strings.Repeat("{}\n", 50)))
	require.ErrorContains(t, err, "too many bad rows")
	require.NotContains(t, err.Error(), "q.jsonl:11:")
}

// Defect N-s3: a byte order mark, which some editors begin a file with, is no part of the first row.
func TestAByteOrderMarkIsPassedOver(t *testing.T) {
	got, err := ReadCorpus("c.jsonl", strings.NewReader("\ufeff"+`{"title": "a", "text": "a is b."}`))
	require.NoError(t, err)
	require.Equal(t, []Passage{{"a", "a is b."}}, got)
	_, err = ReadCorpus("c.jsonl", strings.NewReader("{\"title\": \"a\", \"text\": \"b\"}\n\ufeff{}"))
	require.ErrorContains(t, err, "c.jsonl:2: not JSON at byte 1")
}

func TestQuestionsWithoutASplitAreDividedStably(t *testing.T) {
	var file strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&file, "{\"question\": \"question %d ?\", \"answers\": [\"a\"]}\n", i)
	}
	whole, err := ReadQuestions("q.jsonl", strings.NewReader(file.String()))
	require.NoError(t, err)
	require.InDelta(t, 1600, len(whole[Train]), 60)
	require.InDelta(t, 200, len(whole[Validation]), 45)
	require.InDelta(t, 200, len(whole[Test]), 45)
	rest := file.String()
	rest = rest[strings.IndexByte(rest, '\n')+1:]
	without, err := ReadQuestions("q.jsonl", strings.NewReader(rest))
	require.NoError(t, err)
	for _, split := range Splits() {
		require.Subset(t, whole[split], without[split])
	}
}

func FuzzReadQuestions(f *testing.F) {
	f.Add([]byte(`{"question": "q ?", "answers": ["a"], "split": "test"}`))
	f.Add([]byte("{}\n\n[1]\n\"x\""))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadQuestions("f", strings.NewReader(string(data)))
		if err != nil {
			require.Nil(t, got)
			return
		}
		d := Dataset{Name: "f", Passages: []Passage{{"a", "b"}}, Questions: got}
		if len(got[Train]) > 0 {
			require.NoError(t, d.Validate())
		}
	})
}

func FuzzReadCorpus(f *testing.F) {
	f.Add([]byte(`{"title": "a", "text": "b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadCorpus("f", strings.NewReader(string(data)))
		if err == nil {
			require.NotEmpty(t, got)
		}
		for _, p := range got {
			require.NotEmpty(t, strings.TrimSpace(p.Title))
			require.NotEmpty(t, strings.TrimSpace(p.Text))
		}
	})
}
