package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxSpread bounds how far ids may lie apart: an id may be at most maxSpread times the number of tokens, plus maxHoles.
const (
	maxSpread = 2
	maxHoles  = 1 << 16
)

// vocabulary are the tokens of the model and the merges that make them.
type vocabulary struct {
	alphabet *alphabet
	ids      map[string]int32 // by the token as the file spells it
	texts    []string         // by id: the bytes that a token stands for
	known    []bool           // by id
	single   [256]int32       // the token of each byte; absent where there is none
	lacking  bool             // some byte has no token
	merges   *merges
	whole    map[string]int32 // by the text of a piece; nil unless a piece that is a token is not merged
	firsts   map[int32]string // by id: the text of a token that a whole text begins with, where it is another
	symbols  *symbols         // of a vocabulary of characters; nil in a vocabulary of bytes
}

func newVocabulary(m *model) (*vocabulary, error) {
	ids, err := parseVocab(m.Vocab)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	v := &vocabulary{alphabet: newAlphabet(), ids: ids}
	if err := v.placeTokens(); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	if err := v.findSingles(m.UnkToken); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	merges, err := v.parseMerges(m.Merges)
	if err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	v.merges = newMerges(merges, &v.single)
	if m.IgnoreMerges {
		v.whole = make(map[string]int32, len(ids))
		for token, id := range ids {
			if text, ok := v.alphabet.tokenBytes(token); ok {
				v.whole[text] = id
			}
		}
	}
	return v, nil
}

// newCharacterVocabulary is newVocabulary of a vocabulary of characters. levels is true where text comes in the alphabet of bytes.
func newCharacterVocabulary(m *model, d *decoder, levels bool) (*vocabulary, error) {
	ids, err := parseVocab(m.Vocab)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	v := &vocabulary{alphabet: newAlphabet(), ids: ids}
	for token, id := range ids {
		if err := v.putToken(id, d.tokenText(token, v.alphabet, false)); err != nil {
			return nil, fmt.Errorf("model.vocab: %q: %w", token, err)
		}
	}
	if v.symbols, err = newSymbols(m, v, levels); err != nil {
		return nil, err
	}
	merges, err := v.parseMerges(m.Merges)
	if err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	v.merges = newMerges(merges, nil)
	if m.IgnoreMerges {
		v.whole = ids
		return v, nil
	}
	spellings := make(map[int32]string, len(ids))
	for token, id := range ids {
		spellings[id] = token
	}
	var results []string
	for _, made := range merges {
		results = append(results, spellings[made.id])
	}
	v.symbols.findCrossings(results)
	return v, nil
}

// absent is the id of a byte that has no token.
const absent = -1

// findSingles finds the token of each byte. A vocabulary that was trained on text may lack a byte that its text did not hold, as SmolLM2's
// does. The library tokenizers leaves such a byte out of the ids, unless a token for the unknown is named.
func (v *vocabulary) findSingles(unknown *string) error {
	for b := range v.single {
		token := v.alphabet.spellToken(string([]byte{byte(b)}))
		id, ok := v.ids[token]
		switch {
		case ok:
			v.single[b] = id
		case !isRareByte(byte(b)):
			return fmt.Errorf("no token %q for byte 0x%02x: the vocabulary is not one of bytes", token, b)
		case unknown != nil:
			return fmt.Errorf("no token %q for byte 0x%02x, and model.unk_token is %q: want null, which leaves the byte out", token, b, *unknown)
		default:
			v.single[b], v.lacking = absent, true
		}
	}
	return nil
}

// isRareByte reports whether text does without a byte: a control character but for tab, line feed and carriage return, or a byte that is in
// no character of Unicode's assigned planes.
func isRareByte(b byte) bool {
	switch {
	case b < 0x20:
		return b != '\t' && b != '\n' && b != '\r'
	case b == 0x7f, b == 0xc0, b == 0xc1, b == 0xf1, b == 0xf2:
		return true
	}
	return b >= 0xf5
}

// withoutAbsent is a piece without the bytes that have no token.
func (v *vocabulary) withoutAbsent(piece string) string {
	isAbsentAt := func(i int) bool { return v.single[piece[i]] == absent }
	for i := range len(piece) {
		if !isAbsentAt(i) {
			continue
		}
		rest := []byte(piece[:i])
		for k := i; k < len(piece); k++ {
			if !isAbsentAt(k) {
				rest = append(rest, piece[k])
			}
		}
		return string(rest)
	}
	return piece
}

// placeTokens fills the tables by id.
func (v *vocabulary) placeTokens() error {
	for token, id := range v.ids {
		text, ok := v.alphabet.tokenBytes(token)
		if !ok { // no text is encoded to it
			text = token
		}
		if err := v.putToken(id, text); err != nil {
			return fmt.Errorf("%q: %w", token, err)
		}
	}
	return nil
}

// putToken gives an id its text.
func (v *vocabulary) putToken(id int32, text string) error {
	if id < 0 || int(id) >= maxSpread*len(v.ids)+maxHoles {
		return fmt.Errorf("id %d of a vocabulary of %d tokens", id, len(v.ids))
	}
	if more := int(id) + 1 - len(v.texts); more > 0 {
		v.texts = append(v.texts, make([]string, more)...)
		v.known = append(v.known, make([]bool, more)...)
	}
	if v.known[id] {
		both := []string{v.texts[id], text}
		slices.Sort(both)
		return fmt.Errorf("%q and %q share id %d", both[0], both[1], id)
	}
	v.texts[id], v.known[id] = text, true
	return nil
}

// parseVocab reads the vocabulary itself, for encoding/json would let a repeated token pass.
func parseVocab(raw json.RawMessage) (map[string]int32, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("got %s: want an object of token to id", shortenText(string(raw[:min(len(raw), 200)])))
	}
	ids := map[string]int32{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		token, ok := key.(string)
		if !ok || token == "" {
			return nil, fmt.Errorf("%v: a token must be a non-empty string", key)
		}
		if _, twice := ids[token]; twice {
			return nil, fmt.Errorf("%q: there twice", token)
		}
		var id int32
		if err := dec.Decode(&id); err != nil {
			return nil, fmt.Errorf("%q: id: %w", token, err)
		}
		ids[token] = id
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	return ids, nil
}

// parseMerges reads the merges, each "a b" or ["a", "b"], in the order of their ranks. A pair that is there twice has the later
// rank, as with Hugging Face.
func (v *vocabulary) parseMerges(raw json.RawMessage) (map[uint64]merge, error) {
	if isAbsent(raw) {
		return nil, errors.New("missing")
	}
	list, err := mergeList(raw)
	if err != nil {
		return nil, err
	}
	out := make(map[uint64]merge, len(list))
	for rank, pair := range list {
		if len(pair) != 2 || pair[0] == "" || pair[1] == "" {
			return nil, fmt.Errorf("[%d]: %q: want two tokens", rank, pair)
		}
		var ids [3]int32
		for i, token := range []string{pair[0], pair[1], pair[0] + pair[1]} {
			id, ok := v.ids[token]
			if !ok {
				return nil, fmt.Errorf("[%d] %q %q: %q is not in model.vocab", rank, pair[0], pair[1], token)
			}
			ids[i] = id
		}
		out[pairOf(ids[0], ids[1])] = merge{int32(rank), ids[2]}
	}
	return out, nil
}

// mergeList reads either form; all merges of a file have the same.
func mergeList(raw json.RawMessage) (list [][]string, err error) {
	if err := json.Unmarshal(raw, &list); err == nil {
		return list, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, err
	}
	list = make([][]string, len(lines))
	for i, line := range lines {
		list[i] = strings.Split(line, " ")
	}
	return list, nil
}
