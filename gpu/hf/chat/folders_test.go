package chat

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/internal/realpython"
)

// folderAnswer is what the libraries make of a folder, as testdata/folders.py has it.
type folderAnswer struct {
	Texts, Decoded []string
	IDs            [][]int32
	Conversations  []struct {
		Messages []Message
		Prompt   bool
		Text     string
		IDs      []int32
	}
}

// In folders of the shapes of Mistral and Phi-3 10,000 texts each have the ids of the library tokenizers, and conversations the texts and the
// ids that Transformers gives them.
func TestFoldersOfMistralAndPhiAreReadAsTransformersReadsThem(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "tokenizers", "transformers", "jinja2")
	dir := t.TempDir()
	realpython.Run(t, python, "testdata/folders.py", "make", dir)
	var answers map[string]folderAnswer
	require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/folders.py", "read", dir)), &answers))
	require.Len(t, answers, 3)
	for name, want := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			codec, err := bpe.Load(filepath.Join(dir, name, "tokenizer.json"))
			require.NoError(t, err)
			require.Len(t, want.Texts, 10_000)
			broken := 0
			for i, text := range want.Texts {
				ids := codec.Encode(text)
				require.Equal(t, want.IDs[i], append([]int32{}, ids...), "%+q", text)
				if strings.ContainsRune(want.Decoded[i], utf8.RuneError) { // the library writes bytes that are no character so
					broken++
					continue
				}
				require.Equal(t, want.Decoded[i], codec.DecodeWhole(ids), "%+q", text)
			}
			require.Less(t, broken, len(want.Texts)/5)
			c, err := Open(filepath.Join(dir, name), codec, nil)
			require.NoError(t, err)
			for _, v := range want.Conversations {
				text, mark, err := c.renderText(v.Messages, nil, v.Prompt)
				require.NoError(t, err)
				require.Equal(t, v.Text, removeMark(text, mark))
				require.Equal(t, v.IDs, codec.EncodeMarked(text, mark), "%q", v.Text)
				if v.Prompt {
					ids, err := c.Prompt(v.Messages, nil)
					require.NoError(t, err)
					require.Equal(t, v.IDs, ids)
				}
			}
		})
	}
}
