package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// file is tokenizer.json as Hugging Face writes it, fields in its order.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    *typed          `json:"normalizer"`
	PreTokenizer  *typed          `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         model           `json:"model"`
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type typed struct {
	Type string `json:"type"`
}

type model struct {
	Type         string          `json:"type"`
	Vocab        json.RawMessage `json:"vocab"`
	UnknownToken string          `json:"unk_token"`
}

var null = json.RawMessage("null")

// encodeJSON writes tokenizer.json. The vocabulary is in order of id, so the bytes are a function of it.
func (t *Tokenizer) encodeJSON() ([]byte, error) {
	f := file{
		Version: "1.0", Truncation: null, Padding: null, PostProcessor: null, Decoder: null,
		PreTokenizer: &typed{"Whitespace"},
		Model:        model{Type: "WordLevel", UnknownToken: t.words[t.unknown]},
	}
	if t.lowercase {
		f.Normalizer = &typed{"Lowercase"}
	}
	vocab := []byte{'{'}
	for id, word := range t.words {
		if t.special[id] {
			f.AddedTokens = append(f.AddedTokens, addedToken{ID: int32(id), Content: word, Special: true})
		}
		key, err := marshalPlain(word)
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", id, err)
		}
		if id > 0 {
			vocab = append(vocab, ',')
		}
		vocab = append(vocab, key...)
		vocab = fmt.Appendf(vocab, ":%d", id)
	}
	f.Model.Vocab = append(vocab, '}')
	data, err := marshalPlain(f)
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return nil, err
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

// marshalPlain is json.Marshal without the escaping of <, > and &, so that tags read as they are.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Load reads the tokenizer.json at path.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse reads a tokenizer.json. It refuses a setting that it cannot honour exactly, naming the field and the value.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	if err := f.checkSupported(); err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	vocab, err := parseVocab(f.Model.Vocab)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer.json: model.vocab: %w", err)
	}
	t, err := buildTokenizer(f, vocab)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	return t, t.deriveTables()
}

// checkSupported refuses every part of the file that this package does not implement.
func (f *file) checkSupported() error {
	var faults []error
	refuse := func(field, got, want string) {
		faults = append(faults, fmt.Errorf("%s: %q is not supported: want %s", field, got, want))
	}
	if f.Model.Type != "WordLevel" {
		refuse("model.type", f.Model.Type, "WordLevel")
	}
	if f.Normalizer != nil && f.Normalizer.Type != "Lowercase" {
		refuse("normalizer.type", f.Normalizer.Type, "Lowercase or null")
	}
	switch {
	case f.PreTokenizer == nil:
		refuse("pre_tokenizer", "null", "Whitespace")
	case f.PreTokenizer.Type != "Whitespace":
		refuse("pre_tokenizer.type", f.PreTokenizer.Type, "Whitespace")
	}
	for _, part := range []struct {
		field string
		value json.RawMessage
	}{{"truncation", f.Truncation}, {"padding", f.Padding}, {"post_processor", f.PostProcessor}, {"decoder", f.Decoder}} {
		if len(part.value) > 0 && !bytes.Equal(part.value, null) {
			refuse(part.field, shortenText(string(part.value)), "null")
		}
	}
	for i, token := range f.AddedTokens {
		if token.SingleWord || token.LStrip || token.RStrip || token.Normalized {
			faults = append(faults, fmt.Errorf("added_tokens[%d] %q: single_word, lstrip, rstrip and normalized are not supported: want false", i, token.Content))
		}
	}
	return errors.Join(faults...)
}

func buildTokenizer(f file, vocab map[string]int32) (*Tokenizer, error) {
	t := &Tokenizer{ids: vocab, lowercase: f.Normalizer != nil}
	special := map[string]bool{}
	for i, token := range f.AddedTokens {
		if token.Content == "" {
			return nil, fmt.Errorf("added_tokens[%d].content: empty", i)
		}
		if special[token.Content] {
			return nil, fmt.Errorf("added_tokens[%d] %q: there twice", i, token.Content)
		}
		if id, ok := vocab[token.Content]; ok && id != token.ID {
			return nil, fmt.Errorf("added_tokens[%d] %q: id %d, but model.vocab says %d", i, token.Content, token.ID, id)
		}
		special[token.Content] = true
		vocab[token.Content] = token.ID
	}
	t.words = make([]string, len(vocab))
	t.special = make([]bool, len(vocab))
	filled := make([]bool, len(vocab))
	for word, id := range vocab {
		if id < 0 || int(id) >= len(vocab) {
			return nil, fmt.Errorf("model.vocab %q: id %d is outside 0..%d: ids must have no holes", word, id, len(vocab)-1)
		}
		if filled[id] {
			pair := []string{word, t.words[id]}
			slices.Sort(pair)
			return nil, fmt.Errorf("model.vocab: %q and %q share id %d", pair[0], pair[1], id)
		}
		filled[id] = true
		t.words[id], t.special[id] = word, special[word]
	}
	unknown, ok := vocab[f.Model.UnknownToken]
	if !ok {
		return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", f.Model.UnknownToken)
	}
	t.unknown = unknown
	return t, nil
}

// parseVocab reads the vocabulary object itself, since encoding/json would let a repeated word pass.
func parseVocab(raw json.RawMessage) (map[string]int32, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("missing or unreadable: %w", err)
	}
	if open != json.Delim('{') {
		return nil, fmt.Errorf("got %s: want an object of word to id", shortenText(string(raw)))
	}
	vocab := map[string]int32{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		word, ok := key.(string)
		if !ok || word == "" {
			return nil, fmt.Errorf("%v: a word must be a non-empty string", key)
		}
		if _, twice := vocab[word]; twice {
			return nil, fmt.Errorf("%q: there twice", word)
		}
		var id int32
		if err := dec.Decode(&id); err != nil {
			return nil, fmt.Errorf("%q: id: %w", word, err)
		}
		vocab[word] = id
	}
	return vocab, nil
}

// shortenText keeps error messages readable.
func shortenText(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
