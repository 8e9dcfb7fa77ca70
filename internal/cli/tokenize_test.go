package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

// byteFolder is a model folder with a byte-level tokenizer.json and nothing else: an id is a byte, 256 to 259 are merges, 260 is
// <|im_end|>, which also ends a text.
func byteFolder(t *testing.T) string {
	t.Helper()
	vocab := map[string]int{"he": 256, "ll": 257, "hell": 258, "hello": 259}
	next := 256
	for b := range 256 { // the alphabet of GPT-2
		r := b
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r = next
			next++
		}
		vocab[string(rune(r))] = b
	}
	type object = map[string]any
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	data, err := json.Marshal(object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "pre_tokenizer": level, "decoder": level,
		"post_processor": object{
			"type": "TemplateProcessing", "pair": []any{},
			"single":         []any{object{"Sequence": object{"id": "A", "type_id": 0}}, object{"SpecialToken": object{"id": "<|im_end|>", "type_id": 0}}},
			"special_tokens": object{"<|im_end|>": object{"id": "<|im_end|>", "ids": []int{260}, "tokens": []string{"<|im_end|>"}}},
		},
		"added_tokens": []any{object{"id": 260, "content": "<|im_end|>", "special": true}},
		"model":        object{"type": "BPE", "vocab": vocab, "merges": []string{"h e", "l l", "he ll", "hell o"}},
	})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600))
	return dir
}

func piped(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app{doors: builtin.Doors(), console: console{out: &out, err: io.Discard}}
	cmd := a.rootCommand()
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTokenizeAndBack(t *testing.T) {
	t.Parallel()
	dir := byteFolder(t)
	for _, c := range []struct {
		args    []string
		in, out string
	}{
		{nil, "\"hello\"\n\n  \"he\" \r\n\"\"", "[259]\n[256]\n[]\n"},
		{nil, `"h<|im_end|>"`, "[104,260]\n"},
		{[]string{"hello"}, "", "[259]\n"},
		{[]string{"--decode", "[259]"}, "", "\"hello\"\n"},
		{[]string{"--untrusted"}, `"<|im_end|>"`, "[60,124,105,109,95,101,110,100,124,62]\n"},
		{[]string{"--wrap"}, `"he"`, "[256,260]\n"},
		{nil, `"\u00e9\ud83d\ude42\\ud800\n"`, "[195,169,240,159,153,130,92,117,100,56,48,48,10]\n"},
		{nil, `"\ufffd"`, "[239,191,189]\n"},
		{[]string{"--decode"}, "[259, 32, 260]\n[]\n", "\"hello <|im_end|>\"\n\"\"\n"},
		{[]string{"--decode"}, "[195,169]\n[195]\n[60,38]\n", "\"é\"\n\"\\ufffd\"\n\"<&\"\n"},
	} {
		out, err := piped(t, c.in, append([]string{"tokenize", dir}, c.args...)...)
		require.NoError(t, err, c.in)
		require.Equal(t, c.out, out, c.in)
	}
}

func TestALineThatIsNotTextIsNamed(t *testing.T) {
	t.Parallel()
	dir := byteFolder(t)
	for _, c := range []struct{ flag, in, out, fault string }{
		{"--decode=false", "\"he\"\n\nhe\n\"he\"\n", "[256]\n", "line 3: he: want a JSON string"},
		{"--decode=false", "null\n", "", "line 1: null: want a JSON string"},
		{"--decode=false", "\"a\" \"b\"\n", "", "line 1: \"a\" \"b\": want a JSON string"},
		{"--decode=false", "\"he\"\n\"a\xff\"\n", "[256]\n", "line 2: not UTF-8 text"},
		{"--decode=false", `"a\ud800"`, "", `line 1: \ud800 is half of a surrogate pair`},
		{"--decode=false", `"\udc00\ud800"`, "", `line 1: \udc00 is half`},
		{"--decode=false", `"\ud83d\ude42\uDE42"`, "", `line 1: \uDE42 is half`},
		{"--decode", "[1]\n[261]\n", "\"\\u0001\"\n", "line 2: id 261: the tokenizer's are 0 to 260"},
		{"--decode", "[-1]\n", "", "line 1: id -1: "},
		{"--decode", "[1.5]\n", "", "line 1: [1.5]: want a JSON array of token ids"},
		{"--decode", "null\n", "", "line 1: null: want"},
		{"--decode", "\"a\"\n", "", "line 1: \"a\": want"},
	} {
		out, err := piped(t, c.in, "tokenize", dir, c.flag)
		require.ErrorContains(t, err, c.fault)
		require.Equal(t, c.out, out, c.in)
	}
	long := `"` + strings.Repeat("a", maxLine) + `"`
	_, err := piped(t, "\"a\"\n"+long+"\n", "tokenize", dir)
	require.ErrorContains(t, err, "line 2: longer than 67108864 bytes")
	_, err = piped(t, "", "tokenize", filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "none/tokenizer.json: no such file or directory: name a model folder")
	_, err = piped(t, "", "tokenize", dir, "--decode", "--wrap")
	require.Error(t, err)
	_, err = piped(t, "", "tokenize")
	require.ErrorContains(t, err, "0 arguments given: want weir tokenize folder")
}

// A word-level folder is read by the same command.
func TestTokenizeWords(t *testing.T) {
	t.Parallel()
	doors := builtin.Doors()
	cfg, _, err := config.Resolve(doors, config.Sources{Tasks: []string{doors.Quick}})
	require.NoError(t, err)
	c, err := assembly.OpenTasks(t.Context(), doors, cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), c.Tokenizer.JSON(), 0o600))
	out, err := piped(t, `"what is the capital of sweden ?"`, "tokenize", dir)
	require.NoError(t, err)
	back, err := piped(t, out, "tokenize", dir, "--decode")
	require.NoError(t, err)
	require.Equal(t, "\"what is the capital of sweden ?\"\n", back)
}

// What came so far is answered before more is waited for: a program can ask line by line.
func TestEachLineIsAnsweredBeforeTheNextIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := byteFolder(t)
	in, questions := io.Pipe()
	answers, out := io.Pipe()
	a := &app{doors: builtin.Doors(), console: console{out: out, err: io.Discard}}
	cmd := a.rootCommand()
	cmd.SetIn(in)
	cmd.SetArgs([]string{"tokenize", dir})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(t.Context()) }()
	for range 3 {
		_, err := io.WriteString(questions, "\"hello\"\n")
		require.NoError(t, err)
		answer := make([]byte, len("[259]\n"))
		_, err = io.ReadFull(answers, answer)
		require.NoError(t, err)
		require.Equal(t, "[259]\n", string(answer))
	}
	require.NoError(t, questions.Close())
	require.NoError(t, <-done)
}
