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

// Tokenizer is a BPE tokenizer, of bytes or of characters.
type Tokenizer struct {
	vocab   *vocabulary
	normal  normalizer
	decoder *decoder
	// splitter cuts text in pieces whose bytes are merged. If it is nil, the steps make pieces whose characters are merged.
	splitter splitter
	steps    []step
	tokens   addedTokens
	ids      map[string]int32
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
	levels, err := t.readStages(&f, &m)
	if err := errors.Join(m.checkModel(), err, f.checkRest()); err != nil {
		return nil, err
	}
	if t.splitter != nil {
		t.vocab, err = newVocabulary(&m)
	} else {
		t.vocab, err = newCharacterVocabulary(&m, t.decoder, levels)
	}
	if err != nil {
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

// readStages reads the stages before the model and behind it. levels is true where pieces are written in the alphabet of bytes.
func (t *Tokenizer) readStages(f *file, m *model) (levels bool, err error) {
	var normalErr, splitErr, decodeErr error
	t.normal, normalErr = f.newNormalizer()
	t.decoder, decodeErr = f.newDecoder()
	classes := newClasses()
	t.splitter, splitErr = f.newSplitter(classes)
	if levels = true; splitErr != nil || m.ByteFallback {
		t.splitter = nil
		t.steps, levels, splitErr = f.newSteps(classes, t.normal)
	}
	if splitErr == nil && decodeErr == nil && levels != t.decoder.levels {
		splitErr = errors.New("pre_tokenizer: want ByteLevel in it and as the decoder, or in neither")
	}
	return levels, errors.Join(normalErr, splitErr, decodeErr)
}

// Kind describes the vocabulary: byte-level BPE, or BPE of characters.
func (t *Tokenizer) Kind() string {
	switch {
	case t.decoder.levels:
		return "byte-level BPE"
	case t.vocab.symbols.fallback:
		return "BPE with byte fallback"
	}
	return "BPE"
}

// Encode returns the ids of text. Added tokens in the text become their ids, control tokens among them: text that is not the
// caller's own goes through EncodeText. No token is added that is not in the text; see [Tokenizer.Wrap].
func (t *Tokenizer) Encode(text string) []int32 { return t.Append(nil, text) }

// Append appends the ids of text to dst and returns it.
func (t *Tokenizer) Append(dst []int32, text string) []int32 {
	dst = slices.Grow(dst, len(text)/bytesPerToken)
	t.cutSections(text, beginning, &t.tokens.all, func(part string, at place) {
		dst = t.appendPieces(dst, part, at, nil)
	}, func(id int32) { dst = append(dst, id) })
	return dst
}

// EncodeText returns the ids of text that may be a stranger's, such as a tool's result. The spelling of an added token is text
// like any other: no added token's id is ever among the ids, but those of spaces alone, such as Gemma's token of two line feeds,
// and that of the unknown token.
func (t *Tokenizer) EncodeText(text string) []int32 {
	dst := make([]int32, 0, len(text)/bytesPerToken+1)
	barred := t.tokens.guards()
	t.cutSections(text, beginning, &t.tokens.blank, func(part string, at place) {
		dst = t.appendPieces(dst, part, at, barred)
	}, func(id int32) { dst = append(dst, id) })
	return dst
}

// EncodeMarked is Encode of a text with marks. A mark is a character that no token holds; it stands within each spelling of an
// added token that is to stay text, such as in the words of a user within a rendered conversation. The marks are left out, and
// the text around them is encoded as EncodeText does.
func (t *Tokenizer) EncodeMarked(text string, mark rune) []int32 {
	return t.encodeMarked(text, mark, beginning)
}

// EncodeBehind is EncodeMarked of a text that goes on behind a token: nothing is put before it that stands at the begin of a text
// alone, and where the token takes in the spaces behind it, they are lost.
func (t *Tokenizer) EncodeBehind(last int32, text string, mark rune) []int32 {
	where := opening{placeWithin, true}
	if token := t.tokens.tokenOf(last); token != nil {
		where = opening{placeBehind, token.Normalized}
		if token.RStrip {
			text = stripSpaces(text, true, false)
		}
	}
	return t.encodeMarked(text, mark, where)
}

func (t *Tokenizer) encodeMarked(text string, mark rune, where opening) []int32 {
	var dst []int32
	barred := t.tokens.guards()
	t.cutSections(text, where, &t.tokens.all, func(plain string, at place) {
		if bare := strings.ReplaceAll(plain, string(mark), ""); bare != plain {
			plain = t.normal.settleText(bare)
		}
		dst = t.appendPieces(dst, plain, at, barred)
	}, func(id int32) { dst = append(dst, id) })
	return dst
}

// opening is where a text stands that is encoded.
type opening struct {
	at place
	// normalized is true where the text before it is in the same section, so that nothing is put before this text.
	normalized bool
}

var beginning = opening{}

// cutSections cuts a text at added tokens and normalizes what lies between. It calls plain for each section, and found for each token,
// in order.
func (t *Tokenizer) cutSections(text string, where opening, of *matchers, plain func(section string, at place), found func(id int32)) {
	of.raw.cutText(text, func(part string) {
		of.late.cutText(t.normal.normalizeText(part, where.normalized), func(section string) {
			plain(section, where.at)
			where.at = placeBehind
		}, func(id int32) {
			where.at = placeBehind
			found(id)
		})
	}, func(id int32) {
		where = opening{placeBehind, false}
		found(id)
	})
}

// Normalized is the text in the form in which added tokens are looked for, where any are looked for after normalization. To
// guard their spellings in a text, guard them in this form.
func (t *Tokenizer) Normalized(text string) string {
	if len(t.tokens.all.late.tokens) == 0 {
		return text
	}
	return t.normal.settleText(text)
}

// AddedTokens are the added tokens, in the order of the file.
func (t *Tokenizer) AddedTokens() []AddedToken { return slices.Clone(t.tokens.list) }

// appendPieces appends the ids of a section. With barred, the ids marked there are never among them.
func (t *Tokenizer) appendPieces(dst []int32, text string, at place, barred []bool) []int32 {
	give := func(piece string) {
		begin := len(dst)
		dst = t.appendCached(dst, piece)
		if barred != nil && slices.ContainsFunc(dst[begin:], func(id int32) bool { return barred[id] }) {
			dst = t.appendPiece(dst[:begin], piece, barred)
		}
	}
	if t.splitter != nil {
		t.splitter.splitText(text, give)
		return dst
	}
	cutSteps(t.steps, text, at, func(piece string) { t.vocab.symbols.cutWords(piece, give) })
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

// Decode returns the text of ids within a text, added tokens as they are spelt: the texts of two halves of ids, joined, are that of
// the whole. It is cut anywhere within a character where the ids are; see [Tokenizer.Stream]. An id that names no token is shown as
// U+FFFD.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(t.Token(id))
	}
	return b.String()
}

// DecodeWhole is Decode of the ids of a whole text: the space that the file puts before a text is not shown.
func (t *Tokenizer) DecodeWhole(ids []int32) string {
	first := ""
	if len(ids) > 0 {
		if text, ok := t.vocab.firsts[ids[0]]; ok {
			first, ids = text, ids[1:]
		}
	}
	return t.decoder.stripText(first + t.Decode(ids))
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
func (t *Tokenizer) Special(id int32) bool { return t.hasToken(id) && t.tokens.special[id] }

// Added reports whether an id is that of an added token, special or not.
func (t *Tokenizer) Added(id int32) bool { return t.hasToken(id) && t.tokens.added[id] }

// Size is the largest id plus 1. Ids below it that name no token are possible; a model's embedding may have more rows.
func (t *Tokenizer) Size() int { return len(t.vocab.texts) }

// JSON returns the tokenizer.json as it was read; the caller must not change it.
func (t *Tokenizer) JSON() []byte { return t.json }

// Hash is the hex SHA-256 of JSON().
func (t *Tokenizer) Hash() string { return t.hash }
