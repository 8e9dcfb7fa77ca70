package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTextsComeBackByteForByte(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures() {
		tok := f.tokenizer(t)
		for _, text := range texts(9, 2000) {
			want := text
			if f.nfc {
				want = nfc().normalizeText(text)
			}
			require.Equal(t, want, tok.Decode(tok.EncodeText(text)), "%s: %+q", f.name, text)
			if f.name != "gpt2" && !f.nfc { // whose added tokens take spaces in; NFC is of what lies between added tokens
				require.Equal(t, want, tok.Decode(tok.Encode(text)), "%s: %+q", f.name, text)
			}
		}
	}
}

// Invariant: an encoder of a stranger's text never gives the id of an added token.
func TestInvariantTextOfAStrangerHasNoControlToken(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures() {
		tok := f.tokenizer(t)
		for _, text := range texts(10, 2000) {
			for _, id := range tok.EncodeText(text) {
				require.False(t, tok.Added(id), "%s: %+q", f.name, text)
			}
		}
		for _, token := range f.added {
			id, ok := tok.ID(token.Content)
			require.True(t, ok)
			if token.Content != "<|endoftext|>!" { // of which another token is cut out first
				require.Equal(t, []int32{id}, tok.Encode(token.Content), "the text of the caller has it")
			}
			require.True(t, tok.Added(id))
			require.Equal(t, token.Special, tok.Special(id))
		}
	}
}

// An added token may also be what merges come to, or a whole piece: then the stranger's text is encoded without it.
func TestAnAddedTokenThatMergesMakeIsNotMadeOfText(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		tok := edited(t, fixtures()[0], func(m map[string]any) {
			model := m["model"].(map[string]any)
			model["ignore_merges"] = whole
			vocab := model["vocab"].(map[string]any)
			m["added_tokens"] = append(m["added_tokens"].([]any), map[string]any{
				"id": vocab["Ġcapital"], "content": "Ġcapital", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
			})
		})
		id, ok := tok.ID("Ġcapital")
		require.True(t, ok)
		require.Equal(t, " capital", tok.Decode(tok.EncodeText(" capital")))
		require.NotContains(t, tok.EncodeText("The capital of the capital"), id)
		require.Contains(t, tok.Encode("The capital"), id, "and of the caller's own with it")
		require.NotContains(t, tok.EncodeText("The capital"), id, "whatever was remembered")
	}
}

// edited is a fixture whose file was changed.
func edited(t testing.TB, f fixture, change func(map[string]any)) *Tokenizer {
	t.Helper()
	tok, err := Parse(editedFile(t, f, change))
	require.NoError(t, err)
	return tok
}

func editedFile(t testing.TB, f fixture, change func(map[string]any)) []byte {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(f.file(t)))
	dec.UseNumber()
	var all map[string]any
	require.NoError(t, dec.Decode(&all))
	change(all)
	data, err := json.Marshal(all)
	require.NoError(t, err)
	return data
}

// The synthetic vocabulary of transformers' own test of Qwen2's tokenizer, and the ids that the test expects of it.
func TestQwen2AsTransformersTestsIt(t *testing.T) {
	t.Parallel()
	letters := newAlphabet()
	var tokens []string
	for _, r := range [][2]int{{'!', '~'}, {0xa1, 0xac}, {0xae, 0xff}} {
		for b := r[0]; b <= r[1]; b++ {
			tokens = append(tokens, letters.spellToken(string([]byte{byte(b)})))
		}
	}
	for b := range 256 {
		if token := letters.spellToken(string([]byte{byte(b)})); !slices.Contains(tokens, token) {
			tokens = append(tokens, token)
		}
	}
	tokens = append(tokens, "Ġl", "Ġn", "Ġlo", "Ġlow", "er", "Ġlowest", "Ġnewer", "Ġwider", "01", ";}", ";}Ċ", "Ïĵ")
	vocab := map[string]any{}
	for id, token := range tokens {
		vocab[token] = id
	}
	tok := edited(t, fixtures()[0], func(m map[string]any) {
		model := m["model"].(map[string]any)
		model["vocab"] = vocab
		model["merges"] = []any{"Ġ l", "Ġl o", "Ġlo w", "e r", "0 1", "; }", ";} Ċ", "Ï ĵ"}
		m["added_tokens"] = []any{map[string]any{"id": 268, "content": "<|endoftext|>", "special": true}}
	})
	text := "lower lower newer 010;}\n<|endoftext|>\u03d2\u0301"
	ids := tok.Encode(text)
	require.Equal(t, []int32{75, 78, 86, 260, 259, 260, 220, 77, 68, 86, 260, 220, 15, 16, 15, 266, 268, 267}, ids)
	require.Equal(t, "lower lower newer 010;}\n<|endoftext|>\u03d3", tok.Decode(ids))
	require.Equal(t, "\u03d3\u03d4\u1e9b", tok.Decode(tok.Encode("\u03d2\u0301\u03d2\u0308\u017f\u0307")))
}

func TestTheTemplateGoesAround(t *testing.T) {
	t.Parallel()
	llama := fixtures()[1].tokenizer(t)
	begin, _ := llama.ID("<|begin_of_text|>")
	ids := llama.Encode("The")
	require.Equal(t, append([]int32{begin}, ids...), llama.Wrap(ids))
	qwen := fixtures()[0].tokenizer(t)
	require.Equal(t, qwen.Encode("The"), qwen.Wrap(qwen.Encode("The")))
}

func TestAPieceThatIsATokenIsNotMerged(t *testing.T) {
	t.Parallel()
	f := fixtures()[1]
	id, ok := f.tokenizer(t).ID("Ġcapitals")
	require.True(t, ok)
	require.Equal(t, []int32{id}, f.tokenizer(t).Encode(" capitals"))
	merged := edited(t, f, func(m map[string]any) { m["model"].(map[string]any)["ignore_merges"] = false })
	require.Greater(t, len(merged.Encode(" capitals")), 1)
}

func TestAddedTokens(t *testing.T) {
	t.Parallel()
	tok := fixtures()[2].tokenizer(t)
	for _, c := range []struct{ text, want, why string }{
		{"a <|endoftext|>b", "a [<|endoftext|>]b", ""},
		{"a<|endoftext|>!", "a[<|endoftext|>]!", "what is looked for in normalized text comes second"},
		{"a \n <mask> b", "a[<mask>] b", "lstrip"},
		{"<mask>  <mask>", "[<mask>][<mask>]", "the spaces go once"},
		{"a <sep> \t b", "a [<sep>]b", "rstrip"},
		{"<sep>  <mask>", "[<sep>][<mask>]", "of either"},
		{"<mask><sep>", "[<mask><]sep>", "the longest"},
		{"a caf\u00e9 b", "a [caf\u00e9] b", "a single word"},
		{"acaf\u00e9 caf\u00e9_ 9caf\u00e9, caf\u00e9.", "acaf\u00e9 caf\u00e9_ 9caf\u00e9, [caf\u00e9].", "no part of a word"},
		{"<late", "<late", ""},
		{"<late><<late>", "[<late>]<[<late>]", ""},
	} {
		var b strings.Builder
		for _, id := range tok.Encode(c.text) {
			if tok.Added(id) {
				fmt.Fprintf(&b, "[%s]", tok.Token(id))
			} else {
				b.WriteString(tok.Token(id))
			}
		}
		require.Equal(t, c.want, b.String(), "%q: %s", c.text, c.why)
	}
}

func TestAStreamHoldsBackHalfACharacter(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures() {
		tok := f.tokenizer(t)
		for _, text := range texts(12, 1000) {
			ids := tok.EncodeText(text)
			s := tok.Stream()
			var all strings.Builder
			for _, id := range ids {
				part := s.Next(id)
				all.WriteString(part)
				if utf8.ValidString(text) {
					require.True(t, utf8.ValidString(part), "%+q of %+q", part, text)
				}
			}
			rest := s.Rest()
			require.Less(t, len(rest), utf8.UTFMax)
			if utf8.ValidString(text) {
				require.Empty(t, rest)
			}
			require.Equal(t, tok.Decode(ids), all.String()+rest)
			require.Empty(t, s.Rest())
		}
	}
	tok := fixtures()[0].tokenizer(t)
	s := tok.Stream()
	var parts []string
	for _, b := range []byte("a🙂\xf0\x9fb\xe2\x82") {
		parts = append(parts, s.Next(tok.vocab.single[b]))
	}
	require.Equal(t, []string{"a", "", "", "", "🙂", "", "", "\xf0\x9fb", "", ""}, parts)
	require.Equal(t, "\xe2\x82", s.Rest())
}

func TestIdsThatNameNoTokenAreShown(t *testing.T) {
	t.Parallel()
	tok := fixtures()[0].tokenizer(t)
	require.Equal(t, "\ufffda\ufffd", tok.Decode([]int32{-1, 'a', int32(tok.Size())}))
	require.False(t, tok.Special(-1))
	require.False(t, tok.Added(int32(tok.Size())))
	_, ok := tok.ID("no such token")
	require.False(t, ok)
	id, ok := tok.ID("Ġthe")
	require.True(t, ok)
	require.Equal(t, " the", tok.Token(id))
}

func TestManyEncodeAtOnce(t *testing.T) {
	t.Parallel()
	tok := fixtures()[0].tokenizer(t)
	list := texts(20, 300)
	want := make([][]int32, len(list))
	for i, text := range list {
		want[i] = tok.Encode(text)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			other := fixtures()[0].tokenizer(t)
			for i, text := range list {
				if !slices.Equal(want[i], tok.Encode(text)) || !slices.Equal(want[i], other.Encode(text)) {
					t.Errorf("%+q", text)
				}
			}
		})
	}
	all.Wait()
}

func TestTheFileIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	data := fixtures()[0].file(t)
	tok, err := Parse(data)
	require.NoError(t, err)
	require.Equal(t, data, tok.JSON())
	require.Len(t, tok.Hash(), 64)
	require.Equal(t, 961, tok.Size())
}

func FuzzEncode(f *testing.F) {
	for _, text := range texts(4, 100) {
		f.Add(text)
	}
	for _, cut := range []string{"\xf0\u0341", "e\xf0\u0301", "\xe1\xf0\u0958\u0341\xc3"} { // of which x/text leaves the characters as they are
		f.Add(cut)
	}
	list := fixtures()
	var fast []*Tokenizer
	var slow []*naive
	for _, fixture := range list {
		fast, slow = append(fast, fixture.tokenizer(f)), append(slow, newNaive(f, fixture))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<11 {
			return
		}
		for i, tok := range fast {
			ids := tok.EncodeText(text)
			require.Equal(t, fmt.Sprint(slow[i].encode(text)), fmt.Sprint(ids), "%s: %+q", list[i].name, text)
			for _, id := range ids {
				require.False(t, tok.Added(id))
			}
			want := text
			if list[i].nfc {
				want = nfc().arrangeMarks(text)
			}
			require.Equal(t, want, tok.Decode(ids))
			tok.Encode(text)
		}
	})
}
