package remote

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes are the sequences by which a program moves a terminal's cursor, colours text or sets a title (ECMA-48).
var escapes = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-_]?`)

// Clean returns a text without characters that are not text: terminal escape sequences, control characters but line ends and tabs,
// characters that change the direction of writing, and bytes that are no UTF-8. Line ends become "\n".
func Clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = escapes.ReplaceAllString(text, "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n'
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\uFEFF':
			return -1
		}
		return r
	}, text)
}
