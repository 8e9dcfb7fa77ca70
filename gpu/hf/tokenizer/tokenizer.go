package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/weir-rl/weir/schemas"
)

// Tokenizer is a word-level tokenizer. Its ids are 0 to Size()-1 without holes.
type Tokenizer struct {
	words     []string         // by id
	ids       map[string]int32 // by word
	special   []bool           // by id: an added token
	matcher   matcher          // finds added tokens in raw text
	unknown   int32
	lowercase bool
	json      []byte
	hash      string
}

// Config is the contents of a new word-level tokenizer.
type Config struct {
	// Special are the added tokens, ids 0, 1, ... in this order. They are matched in raw text as they stand
	// and never split. The list must hold Unknown.
	Special []string
	// Words are the other tokens, ids following Special's in this order. A word must be whole to the pre-tokenizer.
	Words []string
	// Unknown is the token for a word that is not in the vocabulary.
	Unknown string
	// Lowercase folds text to lower case before it is split; added tokens are matched before that.
	Lowercase bool
}

// New makes a word-level tokenizer. The same Config gives the same JSON, byte for byte.
//
// Errors: an empty, repeated or splittable word, or an Unknown that is not in Special; each names the word.
func New(cfg Config) (*Tokenizer, error) {
	t := &Tokenizer{ids: make(map[string]int32, len(cfg.Special)+len(cfg.Words)), lowercase: cfg.Lowercase}
	var faults []error
	add := func(word string, special bool) {
		switch _, known := t.ids[word]; {
		case word == "":
			faults = append(faults, errors.New("empty token"))
		case known:
			faults = append(faults, fmt.Errorf("token %q is there twice", word))
		default:
			t.ids[word] = int32(len(t.words))
			t.words = append(t.words, word)
			t.special = append(t.special, special)
		}
	}
	for _, word := range cfg.Special {
		add(word, true)
	}
	for _, word := range cfg.Words {
		if pieces := splitWords(nil, word); len(pieces) > 1 || cfg.Lowercase && strings.ToLower(word) != word {
			faults = append(faults, fmt.Errorf("token %q would never be produced: the pre-tokenizer or the normalizer changes it", word))
			continue
		}
		add(word, false)
	}
	unknown, ok := t.ids[cfg.Unknown]
	if !ok || !t.special[unknown] {
		faults = append(faults, fmt.Errorf("unknown token %q is not among the special tokens", cfg.Unknown))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("make tokenizer: %w", err)
	}
	t.unknown = unknown
	return t, t.deriveTables()
}

// deriveTables derives the other fields from the vocabulary.
func (t *Tokenizer) deriveTables() error {
	t.matcher = newMatcher(t.words, t.special)
	data, err := t.encodeJSON()
	if err != nil {
		return fmt.Errorf("write tokenizer: %w", err)
	}
	t.json = data
	t.hash = schemas.ContentHash(data)
	return nil
}

// Encode returns the ids of text. It adds no token that is not in the text.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.Append(nil, text)
}

// Append appends the ids of text to dst and returns it.
func (t *Tokenizer) Append(dst []int32, text string) []int32 {
	for text != "" {
		start, end, id := t.matcher.nextToken(text)
		dst = t.appendPlain(dst, text[:start], true)
		if id >= 0 {
			dst = append(dst, id)
		}
		text = text[end:]
	}
	return dst
}

// EncodeText returns the ids of text that may be a stranger's, such as a tool's result. Added tokens are not looked for: no id
// is an added token's but the unknown token's.
func (t *Tokenizer) EncodeText(text string) []int32 { return t.appendPlain(nil, text, false) }

// Wrap returns ids: a word-level tokenizer puts nothing around a text.
func (t *Tokenizer) Wrap(ids []int32) []int32 { return ids }

// appendPlain appends the ids of the words of text; a word that is an added token is unknown unless added is set.
func (t *Tokenizer) appendPlain(dst []int32, text string, added bool) []int32 {
	if t.lowercase {
		text = strings.ToLower(text)
	}
	for len(text) > 0 {
		var word string
		word, text = nextWord(text)
		if word == "" {
			break
		}
		id, ok := t.ids[word]
		if !ok || !added && t.special[id] {
			id = t.unknown
		}
		dst = append(dst, id)
	}
	return dst
}

// Decode returns the tokens' text joined by single spaces, added tokens included. An id outside the
// vocabulary is shown as the unknown token.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.Token(id))
	}
	return b.String()
}

// Token returns an id's text; the unknown token's for an id outside the vocabulary.
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.words) {
		id = t.unknown
	}
	return t.words[id]
}

// ID returns the id of exactly this token, and whether there is such a token.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Special reports whether id is an added token, such as a tag.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// Unknown is the id that stands for words outside the vocabulary.
func (t *Tokenizer) Unknown() int32 { return t.unknown }

// Size is the number of ids.
func (t *Tokenizer) Size() int { return len(t.words) }

// JSON returns the tokenizer.json of this tokenizer; the caller must not change it.
func (t *Tokenizer) JSON() []byte { return t.json }

// Hash is the hex SHA-256 of JSON().
func (t *Tokenizer) Hash() string { return t.hash }

// splitWords appends the words of text to dst.
func splitWords(dst []string, text string) []string {
	for {
		var word string
		word, text = nextWord(text)
		if word == "" {
			return dst
		}
		dst = append(dst, word)
	}
}

// nextWord returns the first word of text and the text after it; "" when no word is left. It is Hugging Face's Whitespace
// pre-tokenizer, the pattern \w+|[^\w\s]+.
func nextWord(text string) (word, rest string) {
	start, kind := -1, kindSpace
	for i, r := range text {
		k := kindOf(r)
		if start < 0 {
			if k != kindSpace {
				start, kind = i, k
			}
			continue
		}
		if k != kind {
			return text[start:i], text[i:]
		}
	}
	if start < 0 {
		return "", ""
	}
	return text[start:], ""
}

type runeKind int

const (
	kindSpace runeKind = iota
	kindWord
	kindOther
)

func kindOf(r rune) runeKind {
	switch {
	case r < 0x80:
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return kindWord
		case r == ' ', r >= '\t' && r <= '\r':
			return kindSpace
		}
		return kindOther
	case unicode.IsSpace(r):
		return kindSpace
	case unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control):
		return kindWord
	}
	return kindOther
}

// Words splits text into words as the Whitespace pre-tokenizer does, without a vocabulary: a vocabulary is made of these.
func Words(text string) []string { return splitWords(nil, text) }

// LowerWords are the Words of text in lower case, as a tokenizer with Lowercase finds them.
func LowerWords(text string) []string { return splitWords(nil, strings.ToLower(text)) }
