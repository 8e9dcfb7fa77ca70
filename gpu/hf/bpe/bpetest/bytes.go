// Package bpetest makes small tokenizers for tests.
package bpetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Bytes is a tokenizer.json with token b for each byte b, and the added tokens from 256 on: special tokens, then others.
func Bytes(t testing.TB, special, others []string) []byte {
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
	type object = map[string]any
	var added []any
	for _, list := range [][]string{special, others} {
		for _, content := range list {
			added = append(added, object{"id": 256 + len(added), "content": content, "special": len(added) < len(special)})
		}
	}
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	data, err := json.Marshal(object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "pre_tokenizer": level, "post_processor": nil, "decoder": level,
		"added_tokens": added, "model": object{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	require.NoError(t, err)
	return data
}
