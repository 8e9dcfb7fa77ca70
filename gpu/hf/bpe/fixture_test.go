package bpe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fixture is a small tokenizer.json in the shape of a family's.
type fixture struct {
	name, pattern string
	nfc, whole    bool
	pairs         bool // merges as ["a", "b"]
	added         []AddedToken
	template      any
	merges        int
}

func fixtures() []fixture {
	special := func(contents ...string) (out []AddedToken) {
		for _, c := range contents {
			out = append(out, AddedToken{Content: c, Special: true})
		}
		return out
	}
	return []fixture{
		{
			name: "qwen2", pattern: PatternQwen2, nfc: true, merges: 700,
			added: append(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"), AddedToken{Content: "<tool_call>"}, AddedToken{Content: "</tool_call>"}),
		},
		{
			name: "llama3", pattern: PatternLlama3, whole: true, pairs: true, merges: 900,
			added: special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
			template: map[string]any{"type": "Sequence", "processors": []any{
				map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
				map[string]any{
					"type":   "TemplateProcessing",
					"single": []any{map[string]any{"SpecialToken": map[string]any{"id": "<|begin_of_text|>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
					"pair":   []any{}, "special_tokens": map[string]any{"<|begin_of_text|>": map[string]any{"id": "<|begin_of_text|>", "ids": []int{0}, "tokens": []string{"<|begin_of_text|>"}}},
				},
			}},
		},
		{
			name: "gpt2", pattern: PatternGPT2, merges: 500,
			added: []AddedToken{
				{Content: "<|endoftext|>", Special: true},
				{Content: "<mask>", LStrip: true, Special: true},
				{Content: "<sep>", RStrip: true, Special: true},
				{Content: "caf\u00e9", SingleWord: true, Normalized: true},
				{Content: "<late>", Normalized: true},
				{Content: "<|endoftext|>!", Normalized: true},
				{Content: "<mask><"},
			},
		},
	}
}

// files are those of the fixtures, which take a while to train.
var files sync.Map

// file is the fixture's tokenizer.json.
func (f fixture) file(t testing.TB) []byte {
	t.Helper()
	key := fmt.Sprint(f.name, f.merges)
	if data, ok := files.Load(key); ok {
		return slices.Clone(data.([]byte))
	}
	data := f.make(t)
	files.Store(key, data)
	return slices.Clone(data)
}

func (f fixture) make(t testing.TB) []byte {
	t.Helper()
	corpus, err := os.ReadFile("testdata/corpus.txt")
	require.NoError(t, err)
	vocab, merges := train(t, f.pattern, string(corpus), f.merges)
	if f.whole { // tokens that no merges come to, as Llama 3 has them
		for _, token := range []string{"Ġcapitals", "Ġtokenizer", "ğŁĻĤ", "Ġ\u0120\u0120\u0120\u0120\u0120\u0120\u0120x"} {
			if _, ok := vocab[token]; !ok {
				vocab[token] = int32(len(vocab))
			}
		}
	}
	added := slices.Clone(f.added)
	for i := range added {
		added[i].ID = int32(len(vocab) + i)
	}
	var list []any
	for _, m := range merges {
		if f.pairs {
			list = append(list, m)
		} else {
			list = append(list, m[0]+" "+m[1])
		}
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	var pre any = map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": f.pattern}, "behavior": "Isolated", "invert": false}, level,
	}}
	if f.pattern == PatternGPT2 {
		pre = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	}
	var normalizer any
	if f.nfc {
		normalizer = map[string]any{"type": "NFC"}
	}
	template, err := json.Marshal(f.template)
	require.NoError(t, err)
	template = []byte(strings.ReplaceAll(string(template), `"ids":[0]`, `"ids":[`+fmt.Sprint(len(vocab))+`]`))
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre,
		"post_processor": json.RawMessage(template), "decoder": level,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": nil, "fuse_unk": false,
			"byte_fallback": false, "ignore_merges": f.whole, "vocab": vocab, "merges": list,
		},
	})
	require.NoError(t, err)
	return data
}

func (f fixture) tokenizer(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := Parse(f.file(t))
	require.NoError(t, err)
	return tok
}

// train learns merges from a text: the most frequent pair first, of equals the lesser.
func train(t testing.TB, pattern, text string, merges int) (vocab map[string]int32, made [][2]string) {
	t.Helper()
	letters := newAlphabet()
	vocab = map[string]int32{}
	for b := range 256 {
		vocab[letters.spellToken(string([]byte{byte(b)}))] = int32(b)
	}
	split, err := newExpression(pattern)
	require.NoError(t, err)
	counts := map[string]int{}
	split.splitText(text, func(piece string) { counts[piece]++ })
	type word struct {
		parts []string
		n     int
	}
	var words []word
	for piece, n := range counts {
		var parts []string
		for i := range len(piece) {
			parts = append(parts, letters.spellToken(piece[i:i+1]))
		}
		words = append(words, word{parts, n})
	}
	for len(made) < merges {
		pairs := map[[2]string]int{}
		for _, w := range words {
			for i := range len(w.parts) - 1 {
				pairs[[2]string{w.parts[i], w.parts[i+1]}] += w.n
			}
		}
		var best [2]string
		for p, n := range pairs {
			if c := cmp.Or(cmp.Compare(n, pairs[best]), cmp.Compare(best[0], p[0]), cmp.Compare(best[1], p[1])); c > 0 {
				best = p
			}
		}
		if pairs[best] == 0 {
			break
		}
		made = append(made, best)
		if _, ok := vocab[best[0]+best[1]]; !ok {
			vocab[best[0]+best[1]] = int32(len(vocab))
		}
		for k, w := range words {
			for i := 0; i+1 < len(w.parts); i++ {
				if w.parts[i] == best[0] && w.parts[i+1] == best[1] {
					w.parts = slices.Replace(w.parts, i, i+2, best[0]+best[1])
				}
			}
			words[k] = w
		}
	}
	return vocab, made
}
