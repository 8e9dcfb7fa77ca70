package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder is the decoder of a file: the text of a token within a text, and what is taken away at the begin and the end of a whole
// text.
type decoder struct {
	each []func(token string) string
	// levels writes the bytes that a token's characters stand for.
	levels bool
	// prefix is the character of a Metaspace that the first token of a text loses; 0 for none.
	prefix rune
	strips []strip
}

// strip takes a character away, at most so many times.
type strip struct {
	content     string
	start, stop int
}

// state is how far the tokens are decoded, while a decoder is read.
type decodeState struct {
	fused bool // the tokens are a single text
	bytes bool // tokens of bytes are characters
}

// newDecoder reads the decoder.
func (f *file) newDecoder() (*decoder, error) {
	list, err := sequenceSteps(f.Decoder, "decoders")
	if err == nil && len(list) == 0 {
		err = refuseUnsupported("type", "null", "a decoder: without it the library puts spaces between tokens")
	}
	d, state := &decoder{}, &decodeState{}
	for _, part := range list {
		if stepErr := d.addStep(part, state); stepErr != nil {
			err = errors.Join(err, stepErr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return d, nil
}

func (d *decoder) addStep(part json.RawMessage, state *decodeState) error {
	kind, err := typeOf(part)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel":
		if err := decodeStrict(part, &byteLevel{}); err != nil {
			return fmt.Errorf("type ByteLevel: %w", err)
		}
		if len(d.each) > 0 || state.fused {
			return refuseUnsupported("type", kind, "ByteLevel first")
		}
		d.levels, state.fused, state.bytes = true, true, true
		return nil
	case "ByteFallback", "Fuse":
		if err := decodeStrict(part, &struct {
			Type string `json:"type"`
		}{}); err != nil {
			return fmt.Errorf("type %s: %w", kind, err)
		}
		if kind == "Fuse" {
			state.fused = true
			return nil
		}
		if state.fused {
			return refuseUnsupported("type", kind, "ByteFallback before Fuse")
		}
		state.bytes = true
		d.each = append(d.each, byteText)
		return nil
	case "Metaspace":
		m, err := newMetaspace(part)
		if err != nil {
			return err
		}
		if len(d.each) > 0 || state.fused {
			return refuseUnsupported("type", kind, "Metaspace first")
		}
		if m.scheme != "never" {
			d.prefix, _ = utf8.DecodeRuneInString(m.replacement)
		}
		d.each = append(d.each, func(token string) string { return strings.ReplaceAll(token, m.replacement, " ") })
		return nil
	case "Replace":
		return d.addReplace(part, state)
	case "Strip":
		return d.addStrip(part, state)
	}
	return refuseUnsupported("type", kind, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace or Strip")
}

func (d *decoder) addReplace(part json.RawMessage, state *decodeState) error {
	r, err := readReplace(part)
	if err != nil {
		return err
	}
	if state.fused || state.bytes {
		// Within a text, the tokens may share a match.
		if utf8.RuneCountInString(r.text) != 1 || state.bytes && len(r.text) != 1 {
			return refuseUnsupported("Replace.pattern", r.text, "a single character, or Replace before ByteFallback and Fuse")
		}
	}
	d.each = append(d.each, r.replaceAll)
	return nil
}

func (d *decoder) addStrip(part json.RawMessage, state *decodeState) error {
	var s struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := decodeStrict(part, &s); err != nil {
		return fmt.Errorf("type Strip: %w", err)
	}
	if !state.fused {
		return refuseUnsupported("type", "Strip", "Strip behind Fuse")
	}
	if utf8.RuneCountInString(s.Content) != 1 || s.Start < 0 || s.Stop < 0 {
		return refuseUnsupported("Strip.content", s.Content, "one character, and start and stop of 0 or more")
	}
	d.strips = append(d.strips, strip{s.Content, s.Start, s.Stop})
	return nil
}

// byteText is the byte that a token such as <0x0A> stands for; another token is its own text.
func byteText(token string) string {
	if b, ok := byteOf(token); ok {
		return string([]byte{b})
	}
	return token
}

// byteOf is the byte that a token such as <0x0A> stands for.
func byteOf(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// tokenText is the text of a token within a text. An added token is not written in the alphabet of bytes.
func (d *decoder) tokenText(token string, letters *alphabet, added bool) string {
	if d.levels {
		if text, ok := letters.tokenBytes(token); ok && !added {
			return text
		}
	}
	for _, change := range d.each {
		token = change(token)
	}
	return token
}

// firstText is the text of the token that a whole text begins with.
func (d *decoder) firstText(token string, letters *alphabet, added bool) string {
	return d.tokenText(strings.ReplaceAll(token, string(d.prefix), ""), letters, added)
}

// stripText removes the characters that a Strip step takes from both ends of a whole text.
func (d *decoder) stripText(text string) string {
	for _, s := range d.strips {
		for range s.start {
			text = strings.TrimPrefix(text, s.content)
		}
		for range s.stop {
			text = strings.TrimSuffix(text, s.content)
		}
	}
	return text
}
