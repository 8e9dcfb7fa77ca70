package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes text of any origin fit for a line on a terminal: a character that is not graphic, such as a line break, the
// start of an escape sequence or a change of direction, is shown as its number.
func Plain(text string) string { return escapeControls(text, false) }

// plainLines is Plain for text of several lines.
func plainLines(text string) []string { return strings.Split(escapeControls(text, true), "\n") }

func escapeControls(text string, breaks bool) string {
	graphic := func(r rune) bool { return unicode.IsGraphic(r) || breaks && r == '\n' }
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !graphic(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case graphic(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
