package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dlclark/regexp2/v2"
)

// file is tokenizer.json. Parts whose fields depend on their type are read later.
type file struct {
	Version       json.RawMessage `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []AddedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// AddedToken is a token that is cut out of the text before it is split.
type AddedToken struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
	// SingleWord leaves it alone beside a letter, a digit or an underscore.
	SingleWord bool `json:"single_word"`
	// LStrip and RStrip take the spaces before and after it in; they are lost.
	LStrip bool `json:"lstrip"`
	RStrip bool `json:"rstrip"`
	// Normalized looks for it in normalized text, after the tokens that are not normalized.
	Normalized bool `json:"normalized"`
	// Special is true for a token that controls the model. The others are texts that the model was not to see split.
	Special bool `json:"special"`
}

// model is the BPE model. Vocab and Merges are read later.
type model struct {
	Type                    string          `json:"type"`
	Dropout                 *float64        `json:"dropout"`
	UnkToken                *string         `json:"unk_token"` // of no meaning where each byte has a token, as is FuseUnk
	ContinuingSubwordPrefix *string         `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string         `json:"end_of_word_suffix"`
	FuseUnk                 bool            `json:"fuse_unk"`
	ByteFallback            bool            `json:"byte_fallback"`
	IgnoreMerges            bool            `json:"ignore_merges"`
	Vocab                   json.RawMessage `json:"vocab"`
	Merges                  json.RawMessage `json:"merges"`
}

// decodeStrict reads a single JSON value into v and refuses fields that v does not know.
func decodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the value")
	}
	return nil
}

func isAbsent(part json.RawMessage) bool { return len(part) == 0 || bytes.Equal(part, []byte("null")) }

// typeOf is the "type" of a part.
func typeOf(part json.RawMessage) (string, error) {
	var t struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(part, &t); err != nil {
		return "", err
	}
	if t.Type == nil {
		return "", errors.New("has no type")
	}
	return *t.Type, nil
}

func refuseUnsupported(what, have, want string) error {
	return fmt.Errorf("%s: %q is not supported: want %s", what, shortenText(have), want)
}

// shortenText keeps messages readable.
func shortenText(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// sequenceSteps are the parts of a Sequence in the given field, or the part itself if it is no Sequence; none when it is
// absent.
func sequenceSteps(part json.RawMessage, field string) ([]json.RawMessage, error) {
	if isAbsent(part) {
		return nil, nil
	}
	kind, err := typeOf(part)
	if err != nil {
		return nil, err
	}
	if kind != "Sequence" {
		return []json.RawMessage{part}, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(part, &fields); err != nil {
		return nil, err
	}
	for name := range fields {
		if name != "type" && name != field {
			return nil, fmt.Errorf("unknown field %q", name)
		}
	}
	var list, flat []json.RawMessage
	if err := json.Unmarshal(fields[field], &list); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	for _, inner := range list { // which may be a Sequence
		steps, err := sequenceSteps(inner, field)
		if err != nil {
			return nil, err
		}
		flat = append(flat, steps...)
	}
	return flat, nil
}

// byteLevel are the fields of ByteLevel, which is a pre-tokenizer, a post-processor and a decoder.
type byteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	TrimOffsets    *bool  `json:"trim_offsets"` // offsets are not returned
	UseRegex       *bool  `json:"use_regex"`
}

// newSplitter is the pre-tokenizer.
func (f *file) newSplitter(classes *classes) (splitter, error) {
	list, err := sequenceSteps(f.PreTokenizer, "pretokenizers")
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if len(list) == 0 {
		return nil, refuseUnsupported("pre_tokenizer", "null", "ByteLevel, or a Sequence that ends with it")
	}
	var all chain
	for i, part := range list {
		s, err := splitStep(part, i == len(list)-1, classes)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
		if s != nil {
			all = append(all, s)
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// splitStep is a step of the pre-tokenizer; nil for a ByteLevel that does not split.
func splitStep(part json.RawMessage, last bool, classes *classes) (splitter, error) {
	kind, err := typeOf(part)
	if err != nil {
		return nil, err
	}
	if last != (kind == "ByteLevel") {
		return nil, refuseUnsupported("type", kind, "Split or Digits, and ByteLevel at the end alone")
	}
	switch kind {
	case "ByteLevel":
		var b byteLevel
		if err := decodeStrict(part, &b); err != nil {
			return nil, fmt.Errorf("type ByteLevel: %w", err)
		}
		if b.AddPrefixSpace == nil || *b.AddPrefixSpace {
			return nil, refuseUnsupported("ByteLevel.add_prefix_space", "true", "false: text would not come back as it was")
		}
		if b.UseRegex != nil && !*b.UseRegex {
			return nil, nil
		}
		return newSplitter(PatternGPT2, classes)
	case "Digits":
		return newDigits(part, classes)
	case "Split":
		return newPatternSplitter(part, classes)
	}
	return nil, refuseUnsupported("type", kind, "Split, Digits or ByteLevel")
}

func newDigits(part json.RawMessage, classes *classes) (splitter, error) {
	var d struct {
		Type             string `json:"type"`
		IndividualDigits bool   `json:"individual_digits"`
	}
	if err := decodeStrict(part, &d); err != nil {
		return nil, fmt.Errorf("type Digits: %w", err)
	}
	return digits{classes, d.IndividualDigits}, nil
}

// takesAll reports whether every character of any text is in a match of a pattern, as in the patterns that are split by hand.
func takesAll(pattern string) bool {
	return pattern == PatternQwen2 || pattern == PatternLlama3 || pattern == PatternGPT2
}

func newPatternSplitter(part json.RawMessage, classes *classes) (splitter, error) {
	var s splitFields
	if err := decodeStrict(part, &s); err != nil {
		return nil, fmt.Errorf("type Split: %w", err)
	}
	if s.Behavior == "Removed" && s.Invert && s.Pattern.Regex != nil && takesAll(*s.Pattern.Regex) {
		// Text outside of any match is removed, and there is none.
		s.Behavior, s.Invert = "Isolated", false
	}
	switch {
	case s.Behavior != "Isolated":
		return nil, refuseUnsupported("Split.behavior", s.Behavior, "Isolated")
	case s.Invert:
		return nil, refuseUnsupported("Split.invert", "true", "false")
	case (s.Pattern.Regex == nil) == (s.Pattern.String == nil):
		return nil, errors.New("type Split: pattern: want either Regex or String")
	case s.Pattern.String != nil:
		return newSplitter(regexp2.Escape(*s.Pattern.String), classes)
	}
	return newSplitter(*s.Pattern.Regex, classes)
}

// checkRest refuses the settings of the other parts that are not supported.
func (f *file) checkRest() error {
	var faults []error
	for _, part := range []struct {
		name  string
		value json.RawMessage
	}{{"truncation", f.Truncation}, {"padding", f.Padding}} {
		if !isAbsent(part.value) {
			faults = append(faults, refuseUnsupported(part.name, string(part.value), "null: sequences are cut and filled by whoever uses them"))
		}
	}
	return errors.Join(faults...)
}

// checkModel refuses the settings of the model that are not supported.
func (m *model) checkModel() error {
	var faults []error
	if m.Type != "BPE" && (m.Type != "" || isAbsent(m.Merges)) {
		faults = append(faults, refuseUnsupported("model.type", m.Type, "BPE"))
	}
	if m.Dropout != nil && *m.Dropout != 0 {
		faults = append(faults, refuseUnsupported("model.dropout", fmt.Sprint(*m.Dropout), "null: ids must not be random"))
	}
	for _, affix := range []struct {
		name  string
		value *string
	}{{"continuing_subword_prefix", m.ContinuingSubwordPrefix}, {"end_of_word_suffix", m.EndOfWordSuffix}} {
		if affix.value != nil && *affix.value != "" {
			faults = append(faults, refuseUnsupported("model."+affix.name, *affix.value, `null or ""`))
		}
	}
	return errors.Join(faults...)
}
