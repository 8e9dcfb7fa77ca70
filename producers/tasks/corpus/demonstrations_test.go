package corpus

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/tasks"
)

const demonstrationRows = `{"question": "what is the capital of sweden ?", "steps": [{"search": "sweden", "info": "sweden has capital stockholm."}], "answer": "Stockholm"}
{"question": "what is sweden ?", "answer": "sweden"}
`

func TestReadDemonstrations(t *testing.T) {
	tok, err := tasks.NewTokenizer(&tasks.Dataset{}, "what is the capital of sweden ? sweden has capital stockholm .")
	require.NoError(t, err)
	demos, err := ReadDemonstrations("d.jsonl", strings.NewReader(demonstrationRows), tok, 1)
	require.NoError(t, err)
	require.Equal(t, 2, demos.Len())
	var texts []string
	for i := range uint64(2) {
		tokens, mask := demos.Demonstration(i)
		var shown strings.Builder
		for k, id := range tokens {
			if mask[k] == 1 {
				shown.WriteByte('*')
			}
			shown.WriteString(tok.Token(id) + " ")
		}
		texts = append(texts, shown.String())
	}
	slices.Sort(texts)
	require.Equal(t, []string{
		"<bos> what is sweden ? *<answer> *sweden *</answer> ",
		"<bos> what is the capital of sweden ? *<search> *sweden *</search> <info> sweden has capital stockholm . </info> *<answer> *stockholm *</answer> ",
	}, texts)

	_, err = ReadDemonstrations("d.jsonl", strings.NewReader(demonstrationRows+`{"question": "what is norway ?", "steps": [{"search": ""}], "answer": "sweden"}`), tok, 1)
	require.ErrorContains(t, err, `d.jsonl:3: question: the vocabulary has no word "norway"; steps[0].search: missing or empty; steps[0].info: missing or empty`)
	// A call may end the episode.
	demos, err = ReadDemonstrations("d.jsonl", strings.NewReader(`{"question": "what is sweden ?", "steps": [{"search": "the capital", "info": "stockholm"}, {"tool": "finish", "search": "stockholm"}]}`), tok, 1)
	require.NoError(t, err)
	tokens, mask := demos.Demonstration(0)
	require.Equal(t, "<bos> what is sweden ? <search> the capital </search> <info> stockholm </info> <search> stockholm </search>", tok.Decode(tokens))
	require.Equal(t, []uint8{0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1}, mask)
	_, err = ReadDemonstrations("d.jsonl", strings.NewReader(`{"question": "what is sweden ?", "steps": [{"search": "the capital"}, {"search": "stockholm"}]}`), tok, 1)
	require.ErrorContains(t, err, "d.jsonl:1: steps[0].info: missing or empty")
	// A question may be the end of a conversation.
	const before = `{"messages": [{"role": "user", "content": "what is sweden ?"}, {"role": "assistant", "content": "a capital"}, {"role": "user", "content": "the capital ?"}], "answer": "stockholm"}`
	demos, err = ReadDemonstrations("d.jsonl", strings.NewReader(demonstrationRows+before), tok, 1)
	require.NoError(t, err)
	require.Equal(t, 1, demos.Conversations())
	require.Equal(t, "the capital ?", demos.rows[2].Question)
	require.Equal(t, []tasks.Message{{Role: "user", Content: "what is sweden ?"}, {Role: "assistant", Content: "a capital"}, {Role: "user", Content: "the capital ?"}}, demos.rows[2].Messages)
	for row, fault := range map[string]string{
		`{"question": "sweden", "messages": [{"role": "user", "content": "sweden"}], "answer": "sweden"}`: "question and messages: want either",
		`{"messages": [{"role": "tool", "content": "sweden"}], "answer": "sweden"}`:                       `messages[0].role: "tool": want system, user or assistant`,
		`{"messages": [{"role": "assistant", "content": "sweden"}], "answer": "sweden"}`:                  "messages: the last is the assistant's: want the user's",
		`{"messages": [{"role": "user", "content": " "}], "answer": "sweden"}`:                            "question: missing or empty",
	} {
		_, err = ReadDemonstrations("d.jsonl", strings.NewReader(row), tok, 1)
		require.ErrorContains(t, err, "d.jsonl:1: "+fault)
	}
	_, err = ReadDemonstrations("d.jsonl", strings.NewReader(""), tok, 1)
	require.ErrorContains(t, err, "no demonstration")
}
