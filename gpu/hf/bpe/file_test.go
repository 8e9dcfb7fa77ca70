package bpe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is not understood is refused by its name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	model := func(m object) object { return m["model"].(object) }
	level := object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	split := func(change func(object)) func(object) {
		return func(m object) {
			change(m["pre_tokenizer"].(object)["pretokenizers"].([]any)[0].(object))
		}
	}
	added := func(field string, value any) func(object) {
		return func(m object) { m["added_tokens"].([]any)[1].(object)[field] = value }
	}
	for _, c := range []struct {
		change func(object)
		want   string
	}{
		{func(m object) { m["truncation"] = object{"max_length": 512} }, "truncation: "},
		{func(m object) { m["padding"] = object{"strategy": "BatchLongest"} }, "padding: "},
		{func(m object) { m["extra"] = 1 }, `unknown field "extra"`},
		{func(m object) { m["normalizer"] = object{"type": "Precompiled"} }, `normalizer: type: "Precompiled" is not supported: want NFC, NFD`},
		{func(m object) {
			m["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}, object{"type": "Nmt"}}}
		}, `normalizer: type: "Nmt"`},
		{func(m object) { m["normalizer"] = object{"type": "Prepend", "append": "x"} }, `type Prepend: json: unknown field "append"`},
		{func(m object) {
			m["normalizer"] = object{"type": "Replace", "pattern": object{"String": ""}, "content": "x"}
		}, `normalizer: type Replace: pattern: empty`},
		{func(m object) {
			m["normalizer"] = object{"type": "Replace", "pattern": object{"Regex": "."}, "content": ""}
			m["added_tokens"].([]any)[1].(object)["normalized"] = true
		}, `the normalizer leaves nothing of it`},
		{func(m object) { m["normalizer"] = object{"type": "NFC", "form": 2} }, `unknown field "form"`},
		{func(m object) { m["normalizer"] = object{"lowercase": true} }, "normalizer: has no type"},
		{func(m object) { m["pre_tokenizer"] = nil }, "pre_tokenizer: want ByteLevel in it and as the decoder, or in neither"},
		{func(m object) { m["pre_tokenizer"] = object{"type": "Metaspace"} }, `pre_tokenizer: Metaspace.replacement: ""`},
		{func(m object) { m["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "_"} }, "want ByteLevel in it and as the decoder"},
		{func(m object) {
			m["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}
		}, `pre_tokenizer: Metaspace.prepend_scheme: "last"`},
		{func(m object) {
			m["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "_", "add_prefix_space": false}
		}, `pre_tokenizer: Metaspace.add_prefix_space: "false"`},
		{func(m object) {
			m["normalizer"] = object{"type": "Prepend", "prepend": "_"}
			m["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}
		}, `pre_tokenizer: Metaspace.prepend_scheme: "first" is not supported`},
		{func(m object) { m["pre_tokenizer"] = object{"type": "UnicodeScripts"} }, `pre_tokenizer: type: "UnicodeScripts" is not supported`},
		{func(m object) { m["pre_tokenizer"] = object{"type": "ByteLevel"} }, "add_prefix_space"},
		{func(m object) {
			m["pre_tokenizer"] = object{"type": "ByteLevel", "add_prefix_space": false, "use_regexp": true}
		}, `"use_regexp"`},
		{func(m object) {
			m["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{level, object{"type": "Digits"}, level}}
		}, `type ByteLevel: there twice`},
		{func(m object) { m["pre_tokenizer"].(object)["behavior"] = "Isolated" }, `unknown field "behavior"`},
		{split(func(s object) { s["behavior"] = "Kept" }), `Split.behavior: "Kept" is not supported: want Isolated, Removed`},
		{split(func(s object) { s["pattern"] = object{"Regex": "(a"} }), `pattern "(a"`},
		{split(func(s object) { s["pattern"] = object{} }), "either Regex or String"},
		{split(func(s object) { s["pattern"] = object{"Glob": "*"} }), `"Glob"`},
		{split(func(s object) { s["type"] = "Punctuation" }), `type Punctuation: json: unknown field`},
		{func(m object) { m["decoder"] = nil }, `decoder: type: "null"`},
		{func(m object) {
			strip := object{"type": "Strip", "content": " ", "start": 1, "stop": 0}
			m["decoder"] = object{"type": "Sequence", "decoders": []any{strip, object{"type": "Fuse"}}}
		}, `decoder: type: "Strip" is not supported: want Strip behind Fuse`},
		{func(m object) {
			replace := object{"type": "Replace", "pattern": object{"String": "ab"}, "content": "x"}
			m["decoder"] = object{"type": "Sequence", "decoders": []any{object{"type": "Fuse"}, replace}}
		}, `decoder: Replace.pattern: "ab"`},
		{func(m object) { m["decoder"] = object{"type": "WordPiece"} }, `decoder: type: "WordPiece"`},
		{func(m object) { m["post_processor"] = object{"type": "RobertaProcessing"} }, `post_processor: type: "RobertaProcessing"`},
		{func(m object) { m["post_processor"] = object{"type": "TemplateProcessing", "single": []any{}} }, "no Sequence"},
		{func(m object) {
			m["post_processor"] = object{"type": "TemplateProcessing", "single": []any{object{"SpecialToken": object{"id": "<s>"}}}}
		}, `"<s>" is not in special_tokens`},
		{func(m object) {
			m["post_processor"] = object{
				"type": "TemplateProcessing", "single": []any{object{"SpecialToken": object{"id": "<s>"}}, object{"Sequence": object{"id": "A"}}},
				"special_tokens": object{"<s>": object{"id": "<s>", "ids": []any{1}, "tokens": []any{"<|im_start|>"}}},
			}
		}, `token "<|im_start|>" has not id 1`},
		{func(m object) {
			m["post_processor"] = object{"type": "TemplateProcessing", "single": []any{object{"Sequence": object{"id": "A"}}, object{"Sequence": object{"id": "B"}}}}
		}, `single[1].Sequence: "B"`},
		{func(m object) { delete(m, "model") }, "model: missing"},
		{func(m object) { model(m)["type"] = "Unigram" }, `model.type: "Unigram" is not supported: want BPE`},
		{func(m object) { delete(model(m), "type"); delete(model(m), "merges") }, "model.type"},
		{func(m object) { model(m)["dropout"] = 0.1 }, "model.dropout"},
		{func(m object) { model(m)["byte_fallback"] = true }, `model.vocab: no token "<0x00>", and model.unk_token is null`},
		{func(m object) {
			m["pre_tokenizer"], m["decoder"] = object{"type": "WhitespaceSplit"}, object{"type": "Fuse"}
		}, `model.byte_fallback is false and model.unk_token is null`},
		{func(m object) {
			m["pre_tokenizer"], m["decoder"], model(m)["unk_token"] = object{"type": "WhitespaceSplit"}, object{"type": "Fuse"}, "qqqq"
		}, `model.unk_token: "qqqq" is not in model.vocab`},
		{func(m object) { model(m)["continuing_subword_prefix"] = "##" }, "model.continuing_subword_prefix"},
		{func(m object) { model(m)["end_of_word_suffix"] = "</w>" }, "model.end_of_word_suffix"},
		{func(m object) { model(m)["scores"] = []any{} }, `model: json: unknown field "scores"`},
		{func(m object) { delete(model(m)["vocab"].(object), "Ġ") }, `model.vocab: no token "Ġ" for byte 0x20`},
		{func(m object) { model(m)["vocab"].(object)["zz"] = 5 }, "share id 5"},
		{func(m object) { model(m)["vocab"].(object)["zz"] = -1 }, `"zz": id -1`},
		{func(m object) { model(m)["vocab"].(object)["zz"] = 2_000_000_000 }, `"zz": id 2000000000 of a vocabulary of`},
		{func(m object) { model(m)["vocab"].(object)["zz"] = 1.5 }, `model.vocab: "zz": id: `},
		{func(m object) { model(m)["vocab"] = []any{"a"} }, "model.vocab: got "},
		{func(m object) { model(m)["merges"] = nil }, "model.merges: missing"},
		{func(m object) { model(m)["merges"] = []any{"Ġ t", "Ġt qq"} }, `model.merges: [1] "Ġt" "qq": "qq" is not in model.vocab`},
		{func(m object) { model(m)["merges"] = []any{"q z"} }, `"qz" is not in model.vocab`},
		{func(m object) { model(m)["merges"] = []any{"a"} }, `[0]: ["a"]: want two tokens`},
		{func(m object) { model(m)["merges"] = []any{"a b c"} }, "want two tokens"},
		{func(m object) { model(m)["merges"] = []any{[]any{"a"}} }, "want two tokens"},
		{func(m object) { model(m)["merges"] = []any{7} }, "model.merges: json: cannot unmarshal number"},
		{added("content", ""), "added_tokens: [1].content: empty"},
		{added("content", "<|endoftext|>"), `[1] "<|endoftext|>": there twice`},
		{added("content", "Ġthe"), `[1] "Ġthe": id 957, but model.vocab says`},
		{added("id", 956), "share id 956"},
		{added("id", 1<<30), "added_tokens: [1]"},
		{added("nfkc", true), `unknown field "nfkc"`},
		{func(m object) {
			t := m["added_tokens"].([]any)[1].(object)
			t["content"], t["id"] = "a", model(m)["vocab"].(object)["a"]
		}, `"a" is the token of byte 0x61`},
	} {
		_, err := Parse(editedFile(t, fixtures()[0], c.change))
		require.Error(t, err, c.want)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "read tokenizer.json: ")
	}
}

func TestEveryFaultOfTheSettingsIsTold(t *testing.T) {
	t.Parallel()
	_, err := Parse(editedFile(t, fixtures()[0], func(m map[string]any) {
		m["normalizer"], m["decoder"], m["padding"] = map[string]any{"type": "Nmt"}, map[string]any{"type": "CTC"}, 1
		m["model"].(map[string]any)["dropout"] = 0.5
	}))
	for _, part := range []string{`"Nmt"`, `"CTC"`, "padding", "dropout"} {
		require.ErrorContains(t, err, part)
	}
}

// The forms that different versions write.
func TestOtherFormsOfTheSame(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	f := fixtures()[0]
	text := "The capital's  of\n\n France <|im_end|>is 12345"
	want := f.tokenizer(t).Encode(text)
	for name, change := range map[string]func(object){
		"merges as pairs": func(m object) {
			list := m["model"].(object)["merges"].([]any)
			for i, one := range list {
				a, b, _ := strings.Cut(one.(string), " ")
				list[i] = []any{a, b}
			}
		},
		"no type of model, no fields that came later": func(m object) {
			for _, field := range []string{"type", "byte_fallback", "ignore_merges", "fuse_unk", "dropout"} {
				delete(m["model"].(object), field)
			}
		},
		"an unknown token": func(m object) { m["model"].(object)["unk_token"] = "<|endoftext|>" },
		"sequences": func(m object) {
			m["normalizer"] = object{"type": "Sequence", "normalizers": []any{m["normalizer"]}}
			m["decoder"] = object{"type": "Sequence", "decoders": []any{m["decoder"]}}
		},
		// As Phi-4 and OLMo 2 have it: what no match takes is removed, and the matches take all.
		"matches kept in place of what lies between": func(m object) {
			s := m["pre_tokenizer"].(object)["pretokenizers"].([]any)[0].(object)
			s["behavior"], s["invert"] = "Removed", true
		},
		"a merge twice": func(m object) {
			list := m["model"].(object)["merges"].([]any)
			m["model"].(object)["merges"] = append([]any{list[len(list)-1]}, list...)
		},
	} {
		require.Equal(t, want, edited(t, f, change).Encode(text), name)
	}
	split := edited(t, f, func(m object) {
		m["pre_tokenizer"].(object)["pretokenizers"].([]any)[0].(object)["pattern"] = object{"String": "(a"}
	})
	require.Equal(t, "x(ay", split.Decode(split.Encode("x(ay")))
	smol := edited(t, f, func(m object) {
		m["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{
			object{"type": "Digits", "individual_digits": true}, object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		}}
	})
	require.Equal(t, []string{"a", " ", "1", "2", " b"}, piecesOf(smol.splitter, "a 12 b"))
}

func TestAFileThatIsCutShortIsRefused(t *testing.T) {
	t.Parallel()
	data := fixtures()[2].file(t)
	for cut := 0; cut < len(data); cut += 97 {
		_, err := Parse(data[:cut])
		require.ErrorContains(t, err, "read tokenizer.json: ", "after %d bytes", cut)
	}
	_, err := Parse(append(slices.Clip(data), '{'))
	require.ErrorContains(t, err, "more follows")
	twice := strings.Replace(string(data), `"vocab":{`, `"vocab":{"!":33,`, 1)
	_, err = Parse([]byte(twice))
	require.ErrorContains(t, err, `model.vocab: "!": there twice`)
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	_, err := Load(path)
	require.ErrorContains(t, err, path)
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = Load(path)
	require.ErrorContains(t, err, path+": read tokenizer.json: ")
	require.NoError(t, os.WriteFile(path, fixtures()[0].file(t), 0o600))
	tok, err := Load(path)
	require.NoError(t, err)
	require.NotEmpty(t, tok.Encode("x"))
}

func isUnknown(tok *Tokenizer, id int32) bool {
	return tok.vocab.symbols != nil && tok.vocab.symbols.unknown == id
}

func FuzzParse(f *testing.F) {
	for _, fixture := range fixtures() {
		fixture.merges = 20
		data := fixture.file(f)
		f.Add(data)
		f.Add(data[:len(data)/2])
		var all map[string]json.RawMessage
		require.NoError(f, json.Unmarshal(data, &all))
		for name := range all {
			f.Add([]byte(strings.Replace(string(data), string(all[name]), `{"type":"ByteLevel"}`, 1)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		tok, err := Parse(data)
		if err != nil {
			return
		}
		text := "The <|im_end|> 1234 caf\u00e9 \xff\n\n"
		for _, id := range tok.EncodeText(text) {
			require.False(t, tok.Added(id) && strings.TrimSpace(tok.Token(id)) != "" && !isUnknown(tok, id))
		}
		tok.Decode(tok.Wrap(tok.Encode(text)))
		if tok.splitter != nil && len(tok.normal) == 0 && !tok.vocab.lacking {
			require.Equal(t, text, tok.Decode(tok.EncodeText(text)))
		}
	})
}
