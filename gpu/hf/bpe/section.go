package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// place is where a piece stands.
type place uint8

const (
	placeBegin  place = iota // at the begin of a text
	placeBehind              // behind a token or another piece
	placeWithin              // within a text, of which the piece goes on with the last word
)

// step is a step of a pre-tokenizer: it cuts a piece in further pieces, none empty, and hands them on in order. A step may change
// their text.
type step interface {
	cutPiece(piece string, at place, give func(piece string, at place))
}

// cutSteps cuts a piece by all steps in turn.
func cutSteps(steps []step, piece string, at place, give func(piece string)) {
	if len(steps) == 0 {
		if piece != "" {
			give(piece)
		}
		return
	}
	steps[0].cutPiece(piece, at, func(part string, at place) { cutSteps(steps[1:], part, at, give) })
}

// cut splits a piece at matches, as its behavior has it.
type cut struct {
	find     finder
	behavior behavior
	invert   bool
}

func (c cut) cutPiece(piece string, at place, give func(string, place)) {
	for _, s := range c.behavior.arrangeSpans(findSpans(c.find, piece, c.invert)) {
		if s.end > s.begin {
			give(piece[s.begin:s.end], at.placeOf(s.begin))
		}
	}
}

// placeOf is the place of a part that begins there in a piece at a place.
func (p place) placeOf(begin int) place {
	if begin > 0 {
		return placeBehind
	}
	return p
}

// isolated splits a piece by a splitter, which keeps all text.
type isolated struct{ splitter }

func (s isolated) cutPiece(piece string, at place, give func(string, place)) {
	s.splitText(piece, func(part string) {
		give(part, at)
		at = placeBehind
	})
}

// byteSpelling writes pieces in the alphabet of bytes.
type byteSpelling struct {
	alphabet *alphabet
	prefix   bool     // a piece begins with a space
	splitter splitter // nil where pieces stay whole
}

func (b byteSpelling) cutPiece(piece string, at place, give func(string, place)) {
	if b.prefix && at != placeWithin && !strings.HasPrefix(piece, " ") {
		piece = " " + piece
	}
	if b.splitter == nil {
		give(b.alphabet.spellToken(piece), at)
		return
	}
	isolated{b.splitter}.cutPiece(piece, at, func(part string, at place) { give(b.alphabet.spellToken(part), at) })
}

// metaspace writes spaces as a character of their own, puts it before a piece, and splits before each.
type metaspace struct {
	replacement string
	scheme      string // always, first or never
	split       bool
}

func (m metaspace) cutPiece(piece string, at place, give func(string, place)) {
	piece = strings.ReplaceAll(piece, " ", m.replacement)
	if !strings.HasPrefix(piece, m.replacement) && (m.scheme == "always" && at != placeWithin || m.scheme == "first" && at == placeBegin) {
		piece = m.replacement + piece
	}
	if !m.split {
		give(piece, at)
		return
	}
	cut{textFinder(m.replacement), mergedWithNext, false}.cutPiece(piece, at, give)
}

// newSteps reads the pre-tokenizer, whatever it is. levels is true where pieces are written in the alphabet of bytes.
func (f *file) newSteps(classes *classes, n normalizer) (steps []step, levels bool, err error) {
	list, err := sequenceSteps(f.PreTokenizer, "pretokenizers")
	if err != nil {
		return nil, false, fmt.Errorf("pre_tokenizer: %w", err)
	}
	for i, part := range list {
		s, err := newStep(part, classes)
		if err != nil {
			return nil, false, fmt.Errorf("pre_tokenizer: %w", err)
		}
		switch s := s.(type) {
		case byteSpelling:
			if levels {
				return nil, false, errors.New("pre_tokenizer: type ByteLevel: there twice")
			}
			levels = true
		case metaspace:
			if s.scheme == "first" && (n.removesBegin() || !n.keepsPlaces() && (i > 0 || f.hasLateTokens())) {
				return nil, false, refuseUnsupported("pre_tokenizer: Metaspace.prepend_scheme", "first", "always or never beside this normalizer")
			}
		}
		steps = append(steps, s)
	}
	return steps, levels, nil
}

// removesBegin reports whether a step may take away the first characters of a text.
func (n normalizer) removesBegin() bool {
	for _, step := range n {
		if _, isForm := newForm(step.kind); !isForm && step.kind != "Lowercase" && !step.keepsPlaces {
			return true
		}
	}
	return false
}

func (f *file) hasLateTokens() bool {
	for _, t := range f.AddedTokens {
		if t.Normalized {
			return true
		}
	}
	return false
}

// bareStep is a step of a type without fields.
func bareStep(kind string) (step, bool) {
	switch kind {
	case "Whitespace":
		return cut{wordFinder{}, removed, true}, true
	case "WhitespaceSplit":
		return cut{runeFinder(unicode.IsSpace), removed, false}, true
	}
	return nil, false
}

func newStep(part json.RawMessage, classes *classes) (step, error) {
	kind, err := typeOf(part)
	if err != nil {
		return nil, err
	}
	if s, ok := bareStep(kind); ok {
		return s, decodeStrict(part, &struct {
			Type string `json:"type"`
		}{})
	}
	switch kind {
	case "ByteLevel":
		return newByteSpelling(part, classes)
	case "Metaspace":
		return newMetaspace(part)
	case "Digits":
		s, err := newDigits(part, classes)
		return isolated{s}, err
	case "Punctuation":
		var p struct {
			Type     string `json:"type"`
			Behavior string `json:"behavior"`
		}
		if err := decodeStrict(part, &p); err != nil {
			return nil, fmt.Errorf("type Punctuation: %w", err)
		}
		if p.Behavior == "" {
			p.Behavior = "Isolated"
		}
		b, err := newBehavior("Punctuation.behavior", p.Behavior)
		return cut{runeFinder(isPunctuation), b, false}, err
	case "Split":
		return newCut(part, classes)
	}
	return nil, refuseUnsupported("type", kind, "ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace or WhitespaceSplit")
}

// splitFields are the fields of a Split.
type splitFields struct {
	Type     string       `json:"type"`
	Pattern  splitPattern `json:"pattern"`
	Behavior string       `json:"behavior"`
	Invert   bool         `json:"invert"`
}

func newCut(part json.RawMessage, classes *classes) (step, error) {
	var s splitFields
	if err := decodeStrict(part, &s); err != nil {
		return nil, fmt.Errorf("type Split: %w", err)
	}
	b, err := newBehavior("Split.behavior", s.Behavior)
	if err != nil {
		return nil, err
	}
	if b == isolate && s.Pattern.Regex != nil && *s.Pattern.Regex != "" && s.Pattern.String == nil {
		fast, err := newSplitter(*s.Pattern.Regex, classes)
		return isolated{fast}, err
	}
	find, err := s.Pattern.newFinder()
	if err != nil {
		return nil, fmt.Errorf("type Split: %w", err)
	}
	return cut{find, b, s.Invert}, nil
}

func newByteSpelling(part json.RawMessage, classes *classes) (step, error) {
	var b byteLevel
	if err := decodeStrict(part, &b); err != nil {
		return nil, fmt.Errorf("type ByteLevel: %w", err)
	}
	if b.AddPrefixSpace == nil {
		return nil, refuseUnsupported("ByteLevel.add_prefix_space", "null", "true or false")
	}
	s := byteSpelling{alphabet: newAlphabet(), prefix: *b.AddPrefixSpace}
	if b.UseRegex != nil && !*b.UseRegex {
		return s, nil
	}
	var err error
	s.splitter, err = newSplitter(PatternGPT2, classes)
	return s, err
}

// metaspaceFields are the fields of a Metaspace, which is a pre-tokenizer and a decoder.
type metaspaceFields struct {
	Type           string  `json:"type"`
	Replacement    string  `json:"replacement"`
	PrependScheme  *string `json:"prepend_scheme"`
	Split          *bool   `json:"split"`
	AddPrefixSpace *bool   `json:"add_prefix_space"` // as older files have it
	Spelling       *string `json:"str_rep"`          // the replacement again
}

func newMetaspace(part json.RawMessage) (m metaspace, err error) {
	var fields metaspaceFields
	if err := decodeStrict(part, &fields); err != nil {
		return m, fmt.Errorf("type Metaspace: %w", err)
	}
	m = metaspace{replacement: fields.Replacement, scheme: "always", split: fields.Split == nil || *fields.Split}
	if fields.PrependScheme != nil {
		m.scheme = *fields.PrependScheme
	}
	switch {
	case utf8.RuneCountInString(m.replacement) != 1:
		return m, refuseUnsupported("Metaspace.replacement", m.replacement, "one character")
	case m.scheme != "always" && m.scheme != "first" && m.scheme != "never":
		return m, refuseUnsupported("Metaspace.prepend_scheme", m.scheme, "always, first or never")
	case fields.AddPrefixSpace != nil && !*fields.AddPrefixSpace && m.scheme != "never":
		return m, refuseUnsupported("Metaspace.add_prefix_space", "false", `true, or prepend_scheme "never" beside it`)
	}
	return m, nil
}
