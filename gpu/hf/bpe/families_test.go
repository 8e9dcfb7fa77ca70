package bpe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
)

// libraryAnswer is what the library makes of texts: the ids without the template's tokens and with them, and the texts of the former.
type libraryAnswer struct {
	Bare, Whole [][]int32
	Texts       []string
}

// familyTexts are texts of all kinds, with the tokens of families among them.
func familyTexts(seed uint64, n int) []string {
	list := texts(seed, n)
	tokens := []string{
		"<s>", "</s>", "<unk>", "[INST]", " [/INST]", "<start_of_turn>user\n", "<|end|>\n ", "<|user|>", "<|late|>  x", "<late>", " <late>",
		"\u2581", "\u2581\u2581", "\n\n\n", "  ", "<table>", "<0x41>", "<LATE>", "  <mask>", "\uff1clate\uff1e", "<\uff5cUser\uff5c>",
		"\u0130stanbul", "1\u00bd2", "\ufb01x", "\u3000",
	}
	for i := range list {
		list[i] = strings.ToValidUTF8(list[i], "?") // the library takes text alone
		if i%3 == 0 {
			r := []rune(list[i])
			at := (i * 7) % (len(r) + 1)
			list[i] = string(r[:at]) + tokens[(i/3)%len(tokens)] + string(r[at:])
		}
		if i%11 == 0 {
			list[i] = tokens[(i/11)%len(tokens)] + list[i]
		}
	}
	return append(list, "", " ", "\n", "a", "  a", " a ", "\u2581a", "<s>", "<s> a")
}

// askLibrary has families.py encode the texts by all tokenizers of a folder.
func askLibrary(t *testing.T, python, dir string, list []string) map[string]libraryAnswer {
	t.Helper()
	data, err := json.Marshal(list)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "texts")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	var out map[string]libraryAnswer
	require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/families.py", "encode", dir, path)), &out))
	return out
}

// requireSame compares a tokenizer with the library's answer, text by text.
func requireSame(t *testing.T, tok *Tokenizer, list []string, want libraryAnswer) {
	t.Helper()
	skipped := 0
	for i, text := range list {
		ids := noNil(tok.Encode(text))
		require.Equal(t, want.Bare[i], ids, "%+q: the library's are %q", text, spellings(tok, want.Bare[i]))
		require.Equal(t, want.Whole[i], noNil(tok.Wrap(ids)), "%+q", text)
		if strings.ContainsRune(want.Texts[i], utf8.RuneError) { // the library writes bytes that are no character so, each or a run of them
			skipped++
			continue
		}
		require.Equal(t, want.Texts[i], tok.DecodeWhole(ids), "%+q: %v", text, spellings(tok, ids))
	}
	require.Less(t, skipped, len(list)/5)
}

// The ids and the texts of the pipelines of published families are those of the library tokenizers.
func TestPipelinesOfFamiliesAreThoseOfTheTokenizersLibrary(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "tokenizers")
	dir := t.TempDir()
	realpython.Run(t, python, "testdata/families.py", "make", dir)
	n := 100 // the rest is recorded
	if fulltest.Enabled() {
		n = 1_000
	}
	if os.Getenv("WEIR_TOKENIZERS") != "" {
		n = compared
	}
	list := familyTexts(97, n)
	answers := askLibrary(t, python, dir, list)
	require.Greater(t, len(answers), 20)
	for name, want := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := Load(filepath.Join(dir, name+".json"))
			require.NoError(t, err)
			requireSame(t, tok, list, want)
		})
	}
}

// The same of published files, each NAME.json of the folder that the variable names.
func TestPublishedFilesAreReadAsTheTokenizersLibraryReadsThem(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("WEIR_TOKENIZERS")
	if dir == "" {
		t.Skip("WEIR_TOKENIZERS names no folder of tokenizer.json files, each NAME.json")
	}
	list := familyTexts(31, compared)
	for name, want := range askLibrary(t, realpython.Interpreter(t, "tokenizers"), dir, list) {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(filepath.Join(dir, name+".json"))
			require.NoError(t, err)
			requireSame(t, tok, slices.Clone(list), want)
		})
	}
}
