package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
)

// byteLevel is a byte-level BPE tokenizer.json without merges: an id is a byte.
func byteLevel(t *testing.T) []byte {
	t.Helper()
	vocab := map[string]int{}
	next := 256
	for b := range 256 { // the alphabet of GPT-2
		r := b
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r = next
			next++
		}
		vocab[string(rune(r))] = b
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "pre_tokenizer": level, "post_processor": nil, "decoder": level,
		"added_tokens": []any{map[string]any{"id": 256, "content": "</s>", "special": true}},
		"model":        map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	require.NoError(t, err)
	return data
}

func codecs(t *testing.T) map[string]Codec {
	t.Helper()
	out := map[string]Codec{}
	for name, data := range map[string][]byte{"words": newTokenizer(t).JSON(), "bytes": byteLevel(t)} {
		path := filepath.Join(t.TempDir(), "tokenizer.json")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		c, err := Open(path)
		require.NoError(t, err)
		require.Equal(t, data, c.JSON())
		require.Len(t, c.Hash(), 64)
		out[name] = c
	}
	require.IsType(t, &bpe.Tokenizer{}, out["bytes"])
	require.IsType(t, &Tokenizer{}, out["words"])
	return out
}

func TestACodecIsOfEitherModel(t *testing.T) {
	t.Parallel()
	for name, c := range codecs(t) {
		end, ok := c.ID("</s>")
		require.True(t, ok, name)
		require.True(t, c.Special(end))
		require.Less(t, int(end), c.Size())
		ids := c.Encode("hello </s>")
		require.Contains(t, ids, end, "the caller's own text")
		require.Equal(t, "hello </s>", c.Decode(ids))
		require.Equal(t, append([]int32{7}, ids...), c.Append([]int32{7}, "hello </s>"))
		require.Equal(t, ids, c.Wrap(ids))
		require.Equal(t, "</s>", c.Token(end))
		require.NotContains(t, c.EncodeText("hello </s>"), end, "a stranger's")
	}
}

func TestWordsOfAStrangerAreNoAddedToken(t *testing.T) {
	t.Parallel()
	tok, err := New(Config{Special: []string{"<unk>", "stop"}, Words: []string{"go"}, Unknown: "<unk>"})
	require.NoError(t, err)
	require.Equal(t, []int32{2, 1}, tok.Encode("go stop"))
	require.Equal(t, []int32{2, 0}, tok.EncodeText("go stop"), "unknown, for it is no word")
	require.Equal(t, []int32{2, 0}, tok.EncodeText("go <unk>")[:2])
}

func TestAStreamIsWhatDecodeIs(t *testing.T) {
	t.Parallel()
	for name, c := range codecs(t) {
		for _, text := range []string{"", "hello", "hello , world </s> ...", "hello é"} {
			ids := c.Encode(text)
			s := NewStream(c)
			var b strings.Builder
			for _, id := range ids {
				b.WriteString(s.Next(id))
			}
			b.WriteString(s.Rest())
			require.Equal(t, c.Decode(ids), b.String(), name)
		}
	}
	s := NewStream(codecs(t)["bytes"])
	require.Empty(t, s.Next(0xc3))
	require.Equal(t, "é", s.Next(0xa9))
}

func TestOtherModelsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Unigram", "WordPiece"} {
		_, err := Read(fmt.Appendf(nil, `{"model": {"type": %q}}`, kind))
		require.EqualError(t, err, fmt.Sprintf("read tokenizer.json: model.type: %q is not supported: want BPE or WordLevel", kind))
	}
	for _, bad := range []string{"", "{", `{"model": 3}`, `{"model": {"type": "BPE"}}`, `{"model": {"type": "WordLevel"}}`} {
		c, err := Read([]byte(bad))
		require.ErrorContains(t, err, "read tokenizer.json: ", bad)
		require.Nil(t, c)
	}
	path := filepath.Join(t.TempDir(), "none.json")
	_, err := Open(path)
	require.ErrorContains(t, err, path)
}
