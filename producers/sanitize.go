package producers

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/check"
)

// Cut bounds a tool's observations and errors in tokens.
type Cut struct {
	// Tokens is how many tokens of an observation are kept; 0 is no bound. The note of how many are missing comes on top.
	Tokens int `koanf:"max_tokens"`
	// Keep is which end is kept: left, right, or both, with the middle cut out.
	Keep string `koanf:"keep"`
}

// The parts that [Cut] keeps.
const (
	KeepLeft  = "left"
	KeepRight = "right"
	KeepBoth  = "both"
)

// DefaultCut keeps the two ends of a text with more than 2048 tokens.
func DefaultCut() Cut { return Cut{Tokens: 2048, Keep: KeepBoth} }

// Validate reports every fault.
func (c Cut) Validate() error {
	return check.All(check.NotNegative("max_tokens", c.Tokens), check.OneOf("keep", c.Keep, KeepLeft, KeepRight, KeepBoth))
}

// Bounded is a Tool whose observations are cut otherwise than [DefaultCut] does.
type Bounded interface {
	Tool
	Cut() Cut
}

// floodBytes bounds, for each token that is kept, how much of a text is looked at: the rest is dropped before the text is tokenized.
const floodBytes = 64

// sanitize returns an observation as an agent sees it: valid UTF-8, without control characters and escape sequences, and no longer than its
// bound.
func (e *Episode) sanitize(tool Tool, text string) string {
	cut := DefaultCut()
	if tool, ok := tool.(Bounded); ok {
		cut = tool.Cut()
	}
	return cut.cutTokens(Printable(text), e.env.Tokenizer)
}

// cutTokens cuts a text that has too many tokens.
func (c Cut) cutTokens(text string, tok Tokenizer) string {
	if c.Tokens <= 0 {
		return text
	}
	flooded := 0
	if most := c.Tokens * floodBytes; len(text) > 2*most {
		flooded = len(text) - 2*most
		text = strings.ToValidUTF8(c.joinEnds(text[:most], text[len(text)-most:], "\n"), "")
	}
	ids := Plain(tok, text)
	missing := len(ids) - c.Tokens
	if missing <= 0 && flooded == 0 {
		return text
	}
	mark := fmt.Sprintf(" [%d tokens cut] ", missing)
	if flooded > 0 {
		mark = fmt.Sprintf(" [%d tokens and %d bytes cut] ", max(0, missing), flooded)
	}
	if missing <= 0 {
		return c.joinEnds(text, text, mark)
	}
	half := c.Tokens
	switch c.Keep {
	case KeepRight:
		half = 0
	case KeepBoth:
		half = c.Tokens - c.Tokens/2
	}
	left, right := trimPartialRunes(tok.Decode(ids[:half])), trimPartialRunes(tok.Decode(ids[half+missing:]))
	return left + mark + right
}

// joinEnds joins the two ends that are kept of a text with the mark between them.
func (c Cut) joinEnds(left, right, mark string) string {
	switch c.Keep {
	case KeepLeft:
		return left + mark
	case KeepRight:
		return mark + right
	default:
		return left + mark + right
	}
}

// trimPartialRunes removes the halves of characters that a cut between tokens leaves.
func trimPartialRunes(text string) string { return strings.Trim(text, string(utf8.RuneError)) }

// Plain are the ids of a text that is not the caller's own, such as a tool's: the spelling of a control token in it is text like any
// other. A tokenizer without EncodeText(string) []int32 has no such encoding, and its Encode is used.
func Plain(tok Tokenizer, text string) []int32 {
	if plain, ok := tok.(tokenizer.PlainEncoder); ok {
		return plain.EncodeText(text)
	}
	return tok.Encode(text)
}

// Printable is a text without characters that a terminal obeys: escape sequences go, as do control characters but for line breaks and tabs.
// A carriage return before a line break is removed, another becomes a line break. Bytes that are not UTF-8 become U+FFFD. Unicode's
// noncharacters, which no text has a use for and by which chats mark text that is not to be read as a control token, are removed too.
func Printable(text string) string {
	if isClean(text) {
		return text
	}
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	var b strings.Builder
	for len(text) > 0 {
		if n := escapeLength(text); n > 0 {
			text = text[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '\r':
			if !strings.HasPrefix(text[n:], "\n") {
				b.WriteByte('\n')
			}
		case isControl(r):
		default:
			b.WriteRune(r)
		}
		text = text[n:]
	}
	return b.String()
}

// isClean reports whether sanitize would leave a text as it is.
func isClean(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return r == '\r' || isControl(r) }) < 0
}

// isControl reports whether a terminal, or a reader of two directions, obeys a character in place of showing it, or the character is
// invalid.
func isControl(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
		r >= 0xfdd0 && (r <= 0xfdef || r&0xfffe == 0xfffe)
}

// escapeLength returns the length of the escape sequence that a text begins with; 0 where there is none. Sequences are as ECMA-48 defines
// them: control sequences, strings up to their terminator or the end of the line, and the two-character ones.
func escapeLength(text string) int {
	kind, n := byte(0), 0
	switch {
	case strings.HasPrefix(text, "\x1b"):
		if len(text) == 1 {
			return 1
		}
		kind, n = text[1], 2
	case strings.HasPrefix(text, "\u009b"):
		kind, n = '[', len("\u009b")
	case strings.HasPrefix(text, "\u009d"):
		kind, n = ']', len("\u009d")
	default:
		return 0
	}
	switch {
	case kind == '[':
		for n < len(text) && text[n] >= 0x20 && text[n] <= 0x3f {
			n++
		}
		if n < len(text) && text[n] >= 0x40 && text[n] <= 0x7e {
			n++
		}
		return n
	case strings.IndexByte("]PX^_", kind) >= 0:
		for n < len(text) && text[n] != '\n' {
			if text[n] == '\a' {
				return n + 1
			}
			if strings.HasPrefix(text[n:], "\x1b\\") {
				return n + 2
			}
			n++
		}
		return n
	case kind >= 0x20 && kind <= 0x2f: // such as the choice of a character set
		if n < len(text) {
			n++
		}
		return n
	case kind >= utf8.RuneSelf || kind < 0x20:
		return 1
	}
	return n
}
