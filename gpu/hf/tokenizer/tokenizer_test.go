package tokenizer

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func newTokenizer(tb testing.TB) *Tokenizer {
	tb.Helper()
	tok, err := New(Config{
		Special: []string{"<unk>", "<s>", "</s>", "<s>>"}, Words: []string{"hello", "world", ",", "...", "a_1", "é"},
		Unknown: "<unk>", Lowercase: true,
	})
	require.NoError(tb, err)
	return tok
}

func TestEncode(t *testing.T) {
	tok := newTokenizer(t)
	for text, want := range map[string]string{
		"":                     "",
		"  \n\t ":              "",
		"Hello, WORLD...":      "hello , world ...",
		"hello<s>world</s>":    "hello <s> world </s>",
		"<s><s>>":              "<s> <s>>", // the longest added token wins
		"<S>":                  "<unk> <unk> <unk>",
		"hello-world":          "hello <unk> world",
		"a_1 É hello\u00a0...": "a_1 é hello ...",
		"helloworld":           "<unk>",
	} {
		require.Equal(t, want, tok.Decode(tok.Encode(text)), "%q", text)
	}
	require.Equal(t, 10, tok.Size())
	require.Equal(t, "<unk>", tok.Token(-1))
	require.Equal(t, "<unk>", tok.Token(10))
	require.True(t, tok.Special(1))
	require.False(t, tok.Special(4))
	require.False(t, tok.Special(-1))
}

// The words are those of Hugging Face's pattern.
func TestWordsFollowThePattern(t *testing.T) {
	pattern := regexp.MustCompile(`[\pL\pM\p{Nd}\p{Nl}\p{Pc}]+|[^\pL\pM\p{Nd}\p{Nl}\p{Pc}\s\pZ]+`)
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab_9 .,<>!-é世\u0301\u00a0\n"))).Draw(rt, "text")
		require.Equal(rt, pattern.FindAllString(text, -1), Words(text))
	})
}

// What is written reads back as the same tokenizer, byte for byte.
func TestJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zé]{1,6}|[.,&"\\-]{1,3}`), 0, 20, rapid.ID).Draw(rt, "words")
		tok, err := New(Config{
			Special: []string{"<unk>", "<a>"}, Words: words, Unknown: "<unk>", Lowercase: rapid.Bool().Draw(rt, "lowercase"),
		})
		require.NoError(rt, err)
		back, err := Parse(tok.JSON())
		require.NoError(rt, err)
		require.Equal(rt, tok, back)
		text := strings.Join(words, " ")
		require.Equal(rt, text, back.Decode(back.Encode(text)))
	})
}

func TestJSONIsStable(t *testing.T) {
	tok := newTokenizer(t)
	golden, err := os.ReadFile(filepath.Join("testdata", "tokenizer.json"))
	require.NoError(t, err)
	require.Equal(t, string(golden), string(tok.JSON()))
	loaded, err := Load(filepath.Join("testdata", "tokenizer.json"))
	require.NoError(t, err)
	require.Equal(t, tok.Hash(), loaded.Hash())
	_, err = Load(filepath.Join("testdata", "none.json"))
	require.ErrorContains(t, err, "none.json")
}

func TestNewRefusesWhatItCouldNotEncode(t *testing.T) {
	_, err := New(Config{Special: []string{"<unk>", ""}, Words: []string{"a b", "x", "x", "Up"}, Unknown: "<none>", Lowercase: true})
	for _, want := range []string{"empty token", `"a b" would never be produced`, `"x" is there twice`, `"Up" would never`, `unknown token "<none>"`} {
		require.ErrorContains(t, err, want)
	}
}

func TestParseNamesTheField(t *testing.T) {
	whole := string(newTokenizer(t).JSON())
	for _, tc := range []struct{ from, to, want string }{
		{`"WordLevel"`, `"BPE"`, `model.type: "BPE" is not supported`},
		{`"Lowercase"`, `"NFC"`, `normalizer.type: "NFC" is not supported`},
		{`"Whitespace"`, `"ByteLevel"`, `pre_tokenizer.type: "ByteLevel" is not supported`},
		{`"decoder": null`, `"decoder": {"type": "WordPiece"}`, "decoder:"},
		{`"padding": null`, `"padding": {}`, "padding:"},
		{`"lstrip": false`, `"lstrip": true`, "added_tokens[0]"},
		{`"hello": 4`, `"hello": 5`, `"hello" and "world" share id 5`},
		{`"hello": 4`, `"hello": 99`, `model.vocab "hello": id 99 is outside`},
		{`"hello": 4`, `"world": 4`, `model.vocab: "world": there twice`},
		{`"hello": 4`, `"hello": "x"`, `model.vocab: "hello": id`},
		{`"hello": 4`, `"": 4`, "a word must be a non-empty string"},
		{`"unk_token": "<unk>"`, `"unk_token": "?"`, `model.unk_token: "?"`},
		{`"content": "<s>"`, `"content": "<unk>"`, `added_tokens[1] "<unk>"`},
		{`"content": "<s>"`, `"content": ""`, "added_tokens[1].content: empty"},
		{`"version"`, `version`, "read tokenizer.json"},
	} {
		require.Contains(t, whole, tc.from)
		_, err := Parse([]byte(strings.Replace(whole, tc.from, tc.to, 1)))
		require.ErrorContains(t, err, tc.want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(newTokenizer(f).JSON())
	f.Add([]byte(`{"model":{"type":"WordLevel","vocab":{"<unk>":0},"unk_token":"<unk>"},"pre_tokenizer":{"type":"Whitespace"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(tok.JSON())
		require.NoError(t, err)
		require.Equal(t, tok.Hash(), again.Hash())
		tok.Encode("some <unk> text.")
	})
}

func FuzzEncode(f *testing.F) {
	tok := newTokenizer(f)
	f.Add("hello <s>world</s>, ...")
	f.Add("\xff<s>\xc3")
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text)
		for _, id := range ids {
			require.Less(t, int(id), tok.Size())
			require.GreaterOrEqual(t, id, int32(0))
		}
		require.Equal(t, ids, tok.Encode(tok.Decode(ids)), "decoding and encoding again")
	})
}

func BenchmarkEncode(b *testing.B) {
	tok := newTokenizer(b)
	for b.Loop() {
		tok.Encode("hello world, <s> hello </s> world ... hello")
	}
}

func TestJoinWritesWhatItsPartsWrite(t *testing.T) {
	t.Parallel()
	make := func(special, words []string, lower bool) *Tokenizer {
		tok, err := New(Config{Special: special, Words: words, Unknown: special[0], Lowercase: lower})
		require.NoError(t, err)
		return tok
	}
	a := make([]string{"<unk>", "<a>", "</a>"}, []string{"sweden", "has", "two"}, true)
	b := make([]string{"<unk>", "<b>", "<a>"}, []string{"books", "has"}, true)
	joined, err := Join(a, b)
	require.NoError(t, err)
	require.Equal(t, "<unk> <a> </a> <b> books has sweden two", joined.Decode([]int32{0, 1, 2, 3, 4, 5, 6, 7}))
	require.Equal(t, 8, joined.Size())
	require.Equal(t, "<a> sweden has two books <b>", joined.Decode(joined.Encode("<a>Sweden has two books<b>")))
	again, err := Join(a, b)
	require.NoError(t, err)
	require.Equal(t, joined.JSON(), again.JSON())
	_, err = Join(a, make([]string{"<unk>"}, nil, false))
	require.ErrorContains(t, err, "they fold case: true and false: want the same")
	_, err = Join()
	require.ErrorContains(t, err, "there is none")
}
