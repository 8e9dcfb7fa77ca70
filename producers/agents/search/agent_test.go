package search

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// bytes is a tokenizer that writes every text: an id is a byte, and those from 256 on are tags.
type bytes struct{ tags []string }

func (b bytes) EncodeText(text string) []int32 {
	var out []int32
	for i := range len(text) {
		out = append(out, int32(text[i]))
	}
	return out
}

func (b bytes) Encode(text string) []int32 {
	for i, tag := range b.tags {
		if text == tag {
			return []int32{256 + int32(i)}
		}
	}
	return b.EncodeText(text)
}

func (b bytes) Decode(ids []int32) string {
	var out []byte
	for _, id := range ids {
		out = append(out, byte(id))
	}
	return string(out)
}

func (b bytes) ID(token string) (int32, bool) {
	ids := b.Encode(token)
	return ids[0], ids[0] >= 256
}

func (b bytes) Size() int { return 256 + len(b.tags) }

// What a tool says is text where the vocabulary can write every text, whatever it spells.
func TestWhatAToolSaysIsText(t *testing.T) {
	t.Parallel()
	tok := bytes{[]string{"<bos>", "<search>", "</search>", "<info>", "</info>", "<answer>", "</answer>", "<|im_end|>"}}
	a, err := New(DefaultConfig(), tok)
	require.NoError(t, err)
	for _, text := range append(tok.tags, "plain") {
		require.Equal(t, text, tok.Decode(a.encodeResult(text)))
	}
}

func TestABytesVocabularyWithoutTagsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := New(DefaultConfig(), bytes{})
	require.ErrorContains(t, err, `the vocabulary has no token "<search>"`)
	require.ErrorContains(t, err, "an agent of type chat speaks a published model's own chat template")
}
