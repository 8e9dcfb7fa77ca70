package bpe

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lackedBytes are bytes that have no token in SmolLM2's vocabulary.
const lackedBytes = "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2\xf5\xff"

// lackingFile is a tokenizer.json of SmolLM2's kind: each digit is a piece, and some bytes have no token.
func lackingFile(t testing.TB, lacked ...string) []byte {
	t.Helper()
	type object = map[string]any
	return editedFile(t, fixtures()[2], func(m map[string]any) {
		digits := object{"type": "Digits", "individual_digits": true}
		m["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{digits, m["pre_tokenizer"]}}
		vocab := m["model"].(object)["vocab"].(object)
		for _, token := range m["added_tokens"].([]any) { // as SmolLM2's file has them, or the library numbers them anew
			vocab[token.(object)["content"].(string)] = token.(object)["id"]
		}
		for _, bytes := range append(lacked, lackedBytes) {
			for i := range len(bytes) {
				delete(vocab, newAlphabet().spellToken(bytes[i:i+1]))
			}
		}
	})
}

// withControls puts a control character without a token into a text, at a place of its number.
func withControls(text string, k int) string {
	runes := []rune(text)
	at := k % (len(runes) + 1)
	return string(slices.Insert(runes, at, rune("\x04\x06\x13\x1d"[k%4])))
}

// A byte without a token is left out of the ids, and what stands beside it merges as if it were not there.
func TestAByteWithoutATokenIsLeftOut(t *testing.T) {
	t.Parallel()
	tok, err := Parse(lackingFile(t))
	require.NoError(t, err)
	long := strings.Repeat("the", shortPiece)
	for _, c := range [][2]string{
		{"cap\x04itals", "capitals"},
		{"\x04\x06", ""},
		{"", ""},
		{"x\xff\xf5", "x"},
		{"1\x1357", "157"},
		{long + "\x1d" + long, long + long},
		{"caf\u00e9 \t\n\r", "caf\u00e9 \t\n\r"},
	} {
		have := ""
		for _, id := range tok.EncodeText(c[0]) {
			have += tok.Token(id)
		}
		require.Equal(t, c[1], have, "%+q", c[0])
	}
	require.Equal(t, tok.EncodeText("tokenizer"), tok.EncodeText("tok\xf1enizer"), "what stands beside it merges")
	require.Equal(t, []string{"1", "2", "3"}, spellings(tok, tok.EncodeText("123")), "each digit is a token")
}

func spellings(tok *Tokenizer, ids []int32) (out []string) {
	for _, id := range ids {
		out = append(out, tok.Token(id))
	}
	return out
}

// A vocabulary that lacks a byte of text is not one of bytes. No byte is left out where a token for the unknown would stand in its
// place.
func TestAVocabularyMayLackNoByteOfText(t *testing.T) {
	t.Parallel()
	for _, lacked := range []string{"\n", " ", "a", "\x80", "\xc3", "\xf0", "\xf4"} {
		_, err := Parse(lackingFile(t, lacked))
		require.ErrorContains(t, err, "the vocabulary is not one of bytes", "%+q", lacked)
	}
	data := strings.Replace(string(lackingFile(t)), `"unk_token":null`, `"unk_token":"<|endoftext|>"`, 1)
	_, err := Parse([]byte(data))
	require.ErrorContains(t, err, `for byte 0x04, and model.unk_token is "<|endoftext|>": want null`)
}
