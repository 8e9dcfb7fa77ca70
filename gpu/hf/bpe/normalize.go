package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer brings the text between added tokens to the form in which it is split, step by step.
type normalizer []normalStep

type normalStep struct {
	kind   string
	change func(text string) string
	// opens is true for a step that puts text at the begin of a section, and so has no place within a text that goes on.
	opens bool
	// settles is true for a step that leaves its own result as it is. Added tokens are guarded in such a form.
	settles bool
	// keepsPlaces is true for a step that puts a character in the place of each character.
	keepsPlaces bool
}

// normalizeText is a section in its normal form. A section that goes on within a text has no begin.
func (n normalizer) normalizeText(text string, within bool) string {
	for _, step := range n {
		if within && step.opens {
			continue
		}
		text = step.change(text)
	}
	return text
}

// settleText is the text after the steps that may be done twice.
func (n normalizer) settleText(text string) string {
	for _, step := range n {
		if step.settles {
			text = step.change(text)
		}
	}
	return text
}

// keepsPlaces reports whether each character of a normalized text stands for the character at the same place of the text.
func (n normalizer) keepsPlaces() bool {
	for _, step := range n {
		if !step.keepsPlaces {
			return false
		}
	}
	return true
}

// newNormalizer reads the normalizer.
func (f *file) newNormalizer() (normalizer, error) {
	list, err := sequenceSteps(f.Normalizer, "normalizers")
	if err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	var all normalizer
	for _, part := range list {
		step, err := newNormalStep(part)
		if err != nil {
			return nil, fmt.Errorf("normalizer: %w", err)
		}
		all = append(all, step)
	}
	return all, nil
}

func newNormalStep(part json.RawMessage) (normalStep, error) {
	kind, err := typeOf(part)
	if err != nil {
		return normalStep{}, err
	}
	step, bare := normalStep{kind: kind, settles: true}, true
	switch kind {
	case "Lowercase":
		step.change = lowerText
	case "StripAccents":
		step.change = func(text string) string { return removeRunes(text, isAccent) }
	case "Prepend", "Replace", "Strip":
		bare = false
	default:
		f, ok := newForm(kind)
		if !ok {
			return normalStep{}, refuseUnsupported("type", kind, "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend or Replace")
		}
		step.change = f.normalizeText
	}
	if bare {
		err := decodeStrict(part, &struct {
			Type string `json:"type"`
		}{})
		return step, err
	}
	return step, step.readFields(part)
}

// readFields reads a step whose type has fields.
func (step *normalStep) readFields(part json.RawMessage) error {
	switch step.kind {
	case "Prepend":
		var p struct {
			Type    string `json:"type"`
			Prepend string `json:"prepend"`
		}
		if err := decodeStrict(part, &p); err != nil {
			return fmt.Errorf("type Prepend: %w", err)
		}
		step.opens, step.settles = true, false
		step.change = func(text string) string {
			if text == "" {
				return ""
			}
			return p.Prepend + text
		}
	case "Strip":
		var s struct {
			Type       string `json:"type"`
			StripLeft  bool   `json:"strip_left"`
			StripRight bool   `json:"strip_right"`
		}
		if err := decodeStrict(part, &s); err != nil {
			return fmt.Errorf("type Strip: %w", err)
		}
		step.settles = false
		step.change = func(text string) string { return stripSpaces(text, s.StripLeft, s.StripRight) }
	case "Replace":
		r, err := readReplace(part)
		if err != nil {
			return err
		}
		// A space stays one for who reads the text.
		step.settles = r.text != "" && r.text != " " && !strings.Contains(r.content, r.text)
		step.keepsPlaces = utf8.RuneCountInString(r.text) == 1 && utf8.RuneCountInString(r.content) == 1
		step.change = r.replaceAll
	}
	return nil
}

// replacement is a Replace, which is a normalizer and a decoder. text is the text that it looks for, "" where it looks for the
// matches of an expression.
type replacement struct {
	text, content string
	find          finder
}

func readReplace(part json.RawMessage) (*replacement, error) {
	var r struct {
		Type    string       `json:"type"`
		Pattern splitPattern `json:"pattern"`
		Content string       `json:"content"`
	}
	if err := decodeStrict(part, &r); err != nil {
		return nil, fmt.Errorf("type Replace: %w", err)
	}
	find, err := r.Pattern.newFinder()
	if err != nil {
		return nil, fmt.Errorf("type Replace: %w", err)
	}
	out := &replacement{content: r.Content, find: find}
	if r.Pattern.String != nil {
		out.text = *r.Pattern.String
	}
	return out, nil
}

func (r *replacement) replaceAll(text string) string {
	if r.text != "" {
		return strings.ReplaceAll(text, r.text, r.content)
	}
	var b strings.Builder
	done := 0
	r.find.findMatches(text, func(begin, end int) {
		b.WriteString(text[done:begin])
		b.WriteString(r.content)
		done = end
	})
	if done == 0 && b.Len() == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// splitPattern is a pattern as the file writes it: a text or a regular expression.
type splitPattern struct {
	Regex  *string
	String *string
}

func (p splitPattern) newFinder() (finder, error) {
	switch {
	case (p.Regex == nil) == (p.String == nil):
		return nil, errors.New("pattern: want either Regex or String")
	case p.String != nil && *p.String == "", p.Regex != nil && *p.Regex == "":
		return nil, errors.New("pattern: empty")
	case p.String != nil:
		return textFinder(*p.String), nil
	}
	return newExpression(*p.Regex)
}

// lowerText is text in lower case, character by character.
func lowerText(text string) string {
	if !strings.ContainsRune(text, '\u0130') {
		return mapRunes(text, unicode.ToLower)
	}
	// The only character whose lower case is two.
	return strings.ReplaceAll(mapRunes(text, func(r rune) rune {
		if r == '\u0130' {
			return r
		}
		return unicode.ToLower(r)
	}), "\u0130", "i\u0307")
}

// mapRunes is strings.Map which leaves bytes that are no character as they are.
func mapRunes(text string, to func(rune) rune) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if m := to(r); m == r || r == utf8.RuneError {
			b.WriteString(text[i : i+size])
		} else {
			b.WriteRune(m)
		}
		i += size
	}
	return b.String()
}

// removeRunes is text without the characters of a kind.
func removeRunes(text string, of func(rune) bool) string {
	if strings.IndexFunc(text, of) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !of(r) {
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}

func stripSpaces(text string, left, right bool) string {
	if left {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	if right {
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	return text
}
