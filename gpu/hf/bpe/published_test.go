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

	"github.com/weir-rl/weir/internal/realpython"
)

// The ids are those of the library tokenizers, which is what wrote the files of published models and what reads them everywhere else.
func TestIDsAreThoseOfTheTokenizersLibrary(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "tokenizers")
	for i, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			sameAsLibrary(t, python, f.file(t), texts(uint64(i+4321), compared))
		})
	}
	t.Run("bytes without a token", func(t *testing.T) {
		t.Parallel()
		list := texts(8642, compared/4)
		for k := range list {
			list[k] = withControls(list[k], k)
		}
		sameAsLibrary(t, python, lackingFile(t), list)
	})
}

// The ids of a published model's own tokenizer, where the variable names its folder, such as the one that examples/published-model makes.
func TestIDsOfAPublishedModelAreThoseOfTheTokenizersLibrary(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("WEIR_PUBLISHED_MODEL")
	if folder == "" {
		t.Skip("WEIR_PUBLISHED_MODEL names no model folder: examples/published-model/make_folder.py makes one")
	}
	python := realpython.Interpreter(t, "tokenizers")
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	require.NoError(t, err)
	list := texts(1357, compared)
	for k := range list {
		list[k] = withControls(list[k], k)
	}
	sameAsLibrary(t, python, data, list)
}

// sameAsLibrary compares the ids of texts, and the texts of the ids, with those of the library.
func sameAsLibrary(t *testing.T, python string, file []byte, list []string) {
	t.Helper()
	dir := t.TempDir()
	list = slices.Clone(list)
	for k := range list { // the library takes text alone
		list[k] = strings.ToValidUTF8(list[k], "?")
	}
	data, err := json.Marshal(list)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), file, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.json"), data, 0o600))
	var want struct {
		IDs   [][]int32
		Texts []string
	}
	require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/published.py", dir)), &want))
	tok, err := Parse(file)
	require.NoError(t, err)
	for k, text := range list {
		require.Equal(t, want.IDs[k], noNil(tok.Encode(text)), "%+q", text)
		if !strings.ContainsRune(want.Texts[k], utf8.RuneError) { // the library reads added tokens as bytes, so that é in one of them is none
			require.Equal(t, want.Texts[k], tok.Decode(want.IDs[k]), "%+q", text)
		}
	}
}

// The table is that of testdata/younger.json, by which the reference in Python goes.
func TestTheTableOfYoungerCharacters(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/younger.json")
	require.NoError(t, err)
	var ranges [][2]rune
	require.NoError(t, json.Unmarshal(data, &ranges))
	in := map[rune]bool{}
	for _, r := range ranges {
		for c := r[0]; c <= r[1]; c++ {
			in[c] = true
		}
	}
	for c := rune(0); c <= utf8.MaxRune; c++ {
		require.Equal(t, in[c], isYounger(c), "%U", c)
	}
	require.Equal(t, "q\u0345\u07fd\u00e9", nfc().normalizeText("q\u0345\u07fde\u0301"),
		"it is not put before the mark, and what follows is composed")
}
