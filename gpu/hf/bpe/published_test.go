package bpe

import (
	"encoding/json"
	"os"
	"path/filepath"
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
			dir := t.TempDir()
			list := texts(uint64(i+4321), compared)
			for k := range list { // the library takes text alone
				list[k] = strings.ToValidUTF8(list[k], "?")
			}
			data, err := json.Marshal(list)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), f.file(t), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.json"), data, 0o600))
			var want struct {
				IDs   [][]int32
				Texts []string
			}
			require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/published.py", dir)), &want))
			tok := f.tokenizer(t)
			for k, text := range list {
				require.Equal(t, want.IDs[k], noNil(tok.Encode(text)), "%+q", text)
				if !strings.ContainsRune(want.Texts[k], utf8.RuneError) { // the library reads added tokens as bytes, so that é in one of them is none
					require.Equal(t, want.Texts[k], tok.Decode(want.IDs[k]), "%+q", text)
				}
			}
		})
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
	require.Equal(t, "q\u0345\u07fd\u00e9", composeText("q\u0345\u07fde\u0301"), "it is not put before the mark, and what follows is composed")
}
