package bpe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Tokenizer is a byte-level BPE tokenizer.
type Tokenizer struct {
	vocab     *vocabulary
	normalize bool
	splitter  splitter
	raw       *matcher // added tokens that are looked for in the text as it is
	late      *matcher // added tokens that are looked for in normalized text
	added     []bool   // by id
	special   []bool   // by id
	ids       map[string]int32
	list      []AddedToken
	// guarded is true when merges may make an added token out of plain text, so that EncodeText must look.
	guarded  bool
	template template
	cache    *cache
	json     []byte
	hash     string
}

// bytesPerToken is the least number of bytes of text to a token, as a rule. Buffers for ids are sized by it.
const bytesPerToken = 3

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

// Parse reads a tokenizer.json, which it keeps: the caller must not change it any more. Errors name each part, field or value that
// is not understood, the first fault of the vocabulary and the first of the merges.
func Parse(data []byte) (*Tokenizer, error) {
	t, err := parseFile(data)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	sum := sha256.Sum256(data)
	t.json, t.hash = data, hex.EncodeToString(sum[:])
	return t, nil
}

func parseFile(data []byte) (*Tokenizer, error) {
	var f file
	if err := decodeStrict(data, &f); err != nil {
		return nil, err
	}
	if isAbsent(f.Model) {
		return nil, errors.New("model: missing")
	}
	var m model
	if err := decodeStrict(f.Model, &m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	t := &Tokenizer{cache: newCache()}
	var splitErr, normalErr error
	t.splitter, splitErr = f.newSplitter(newClasses())
	t.normalize, normalErr = f.needsNFC()
	if err := errors.Join(m.checkModel(), normalErr, splitErr, f.checkRest()); err != nil {
		return nil, err
	}
	var err error
	if t.vocab, err = newVocabulary(&m); err != nil {
		return nil, err
	}
	if err := t.addTokens(f.AddedTokens); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if t.template, err = f.readTemplate(t.ID); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	return t, nil
}

// addTokens adds the added tokens to the vocabulary and to the matchers.
func (t *Tokenizer) addTokens(tokens []AddedToken) error {
	t.raw, t.late, t.ids, t.list = newMatcher(), newMatcher(), map[string]int32{}, tokens
	spaced := false
	for i, token := range tokens {
		if token.Content == "" {
			return fmt.Errorf("[%d].content: empty", i)
		}
		if _, twice := t.ids[token.Content]; twice {
			return fmt.Errorf("[%d] %q: there twice", i, token.Content)
		}
		t.ids[token.Content] = token.ID
		if have, ok := t.vocab.ids[token.Content]; !ok {
			if err := t.vocab.putToken(token.ID, token.Content); err != nil {
				return fmt.Errorf("[%d] %q: %w", i, token.Content, err)
			}
		} else if have != token.ID {
			return fmt.Errorf("[%d] %q: id %d, but model.vocab says %d", i, token.Content, token.ID, have)
		} else {
			t.vocab.texts[have] = token.Content
		}
		text, m := token.Content, t.raw
		if token.Normalized {
			m = t.late
			if t.normalize {
				text = composeText(text)
			}
		}
		m.addToken(token, text)
		spaced = spaced || strings.TrimSpace(text[:1]) == ""
	}
	for i, token := range tokens {
		if token.RStrip && spaced {
			return fmt.Errorf("[%d] %q: rstrip is not supported beside a token that begins with a space", i, token.Content)
		}
	}
	t.markAddedTokens(tokens)
	for b, id := range t.vocab.single {
		if id != absent && t.added[id] {
			return fmt.Errorf("%q is the token of byte 0x%02x, which any text may hold", t.vocab.texts[id], b)
		}
	}
	return nil
}

// markAddedTokens notes which ids are added tokens, and whether merges can make any of them.
func (t *Tokenizer) markAddedTokens(tokens []AddedToken) {
	t.added, t.special = make([]bool, len(t.vocab.texts)), make([]bool, len(t.vocab.texts))
	for _, token := range tokens {
		t.added[token.ID], t.special[token.ID] = true, token.Special
	}
	for _, e := range t.vocab.merges.places {
		t.guarded = t.guarded || e.key != free && t.added[e.id]
	}
	for _, id := range t.vocab.whole {
		t.guarded = t.guarded || t.added[id]
	}
}

// Encode returns the ids of text. Added tokens in the text become their ids, control tokens among them: text that is not the
// caller's own goes through EncodeText. No token is added that is not in the text; see [Tokenizer.Wrap].
func (t *Tokenizer) Encode(text string) []int32 { return t.Append(nil, text) }

// Append appends the ids of text to dst and returns it.
func (t *Tokenizer) Append(dst []int32, text string) []int32 {
	dst = slices.Grow(dst, len(text)/bytesPerToken)
	found := func(id int32) { dst = append(dst, id) }
	plain := func(part string) { dst = t.appendPieces(dst, part, nil) }
	t.raw.cutText(text, func(part string) {
		if t.normalize {
			part = composeText(part)
		}
		t.late.cutText(part, plain, found)
	}, found)
	return dst
}

// EncodeText returns the ids of text that may be a stranger's, such as a tool's result. The spelling of an added token is text
// like any other: no added token's id is ever among the ids.
func (t *Tokenizer) EncodeText(text string) []int32 {
	if t.normalize {
		text = composeText(text)
	}
	dst := make([]int32, 0, len(text)/bytesPerToken+1)
	if t.guarded {
		return t.appendPieces(dst, text, t.added)
	}
	return t.appendPieces(dst, text, nil)
}

// EncodeMarked is Encode of a text with marks. A mark is a character that no token holds; it stands within each spelling of an
// added token that is to stay text, such as in the words of a user within a rendered conversation. The marks are left out, and
// the text around them is encoded as EncodeText does.
func (t *Tokenizer) EncodeMarked(text string, mark rune) []int32 {
	var dst []int32
	found := func(id int32) { dst = append(dst, id) }
	var barred []bool
	if t.guarded {
		barred = t.added
	}
	t.raw.cutText(text, func(part string) {
		if t.normalize {
			part = composeText(part)
		}
		t.late.cutText(part, func(plain string) {
			if bare := strings.ReplaceAll(plain, string(mark), ""); bare != plain {
				if plain = bare; t.normalize {
					plain = composeText(plain)
				}
			}
			dst = t.appendPieces(dst, plain, barred)
		}, found)
	}, found)
	return dst
}

// Normalized is the text in the form in which added tokens are looked for, where any are looked for after normalization. To
// guard their spellings in a text, guard them in this form.
func (t *Tokenizer) Normalized(text string) string {
	if !t.normalize || len(t.late.tokens) == 0 {
		return text
	}
	return composeText(text)
}

// AddedTokens are the added tokens, in the order of the file.
func (t *Tokenizer) AddedTokens() []AddedToken { return slices.Clone(t.list) }

// appendPieces appends the ids of text without added tokens. With barred, the ids marked there are never among them.
func (t *Tokenizer) appendPieces(dst []int32, text string, barred []bool) []int32 {
	t.splitter.splitText(text, func(piece string) {
		begin := len(dst)
		dst = t.appendCached(dst, piece)
		if barred != nil && slices.ContainsFunc(dst[begin:], func(id int32) bool { return barred[id] }) {
			dst = t.appendPiece(dst[:begin], piece, barred)
		}
	})
	return dst
}

func (t *Tokenizer) appendCached(dst []int32, piece string) []int32 {
	slot := t.cache.findSlot(piece)
	if slot == nil {
		return t.appendPiece(dst, piece, nil)
	}
	if have := slot.Load(); have != nil && have.piece == piece {
		return append(dst, have.ids...)
	}
	begin := len(dst)
	dst = t.appendPiece(dst, piece, nil)
	t.cache.putPiece(slot, piece, dst[begin:])
	return dst
}

func (t *Tokenizer) appendPiece(dst []int32, piece string, barred []bool) []int32 {
	if id, ok := t.vocab.whole[piece]; ok && (barred == nil || !barred[id]) {
		return append(dst, id)
	}
	return t.vocab.encodePiece(dst, piece, barred)
}

// Wrap puts the ids of the post-processor's template around a text's ids, such as Llama 3's beginning of text. It returns ids
// itself where there is nothing.
func (t *Tokenizer) Wrap(ids []int32) []int32 {
	if len(t.template.before)+len(t.template.after) == 0 {
		return ids
	}
	out := make([]int32, 0, len(t.template.before)+len(ids)+len(t.template.after))
	return append(append(append(out, t.template.before...), ids...), t.template.after...)
}

// Decode returns the text of ids, added tokens as they are spelt. It is cut anywhere within a character where the ids are;
// see [Tokenizer.Stream]. An id that names no token is shown as U+FFFD.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(t.Token(id))
	}
	return b.String()
}

// Token is an id's text, which may be a part of a character; U+FFFD for an id that names no token.
func (t *Tokenizer) Token(id int32) string {
	if !t.hasToken(id) {
		return "\uFFFD"
	}
	return t.vocab.texts[id]
}

func (t *Tokenizer) hasToken(id int32) bool {
	return id >= 0 && int(id) < len(t.vocab.known) && t.vocab.known[id]
}

// ID returns the id of a token, and whether there is such a token. An added token is found by its text, any other by its
// spelling in the vocabulary, where a space is U+0120.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.ids[token]; ok {
		return id, true
	}
	id, ok := t.vocab.ids[token]
	return id, ok
}

// Special reports whether an id is a special token's: a token that controls the model and is no text.
func (t *Tokenizer) Special(id int32) bool { return t.hasToken(id) && t.special[id] }

// Added reports whether an id is that of an added token, special or not.
func (t *Tokenizer) Added(id int32) bool { return t.hasToken(id) && t.added[id] }

// Size is the largest id plus 1. Ids below it that name no token are possible; a model's embedding may have more rows.
func (t *Tokenizer) Size() int { return len(t.vocab.texts) }

// JSON returns the tokenizer.json as it was read; the caller must not change it.
func (t *Tokenizer) JSON() []byte { return t.json }

// Hash is the hex SHA-256 of JSON().
func (t *Tokenizer) Hash() string { return t.hash }
