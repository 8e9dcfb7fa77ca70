package bpe

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// younger are the characters that Unicode 15 reorders or joins, as golang.org/x/text does, and the library tokenizers leaves
// where they stand. Its NFC has the tables of Unicode 9, and every published model was trained on its output. The list was
// found by comparing the library's release 0.23.3 with x/text at each character; TestIDsAreThoseOfTheTokenizersLibrary checks
// it.
var younger = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x07fd, Hi: 0x07fd, Stride: 1},
		{Lo: 0x0898, Hi: 0x089f, Stride: 1},
		{Lo: 0x08ca, Hi: 0x08d3, Stride: 1},
		{Lo: 0x09fe, Hi: 0x09fe, Stride: 1},
		{Lo: 0x0c3c, Hi: 0x0c3c, Stride: 1},
		{Lo: 0x0d3b, Hi: 0x0d3c, Stride: 1},
		{Lo: 0x0eba, Hi: 0x0eba, Stride: 1},
		{Lo: 0x1715, Hi: 0x1715, Stride: 1},
		{Lo: 0x1abf, Hi: 0x1ace, Stride: 1},
		{Lo: 0x1df6, Hi: 0x1dfa, Stride: 1},
		{Lo: 0xa82c, Hi: 0xa82c, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x10d24, Hi: 0x10d27, Stride: 1},
		{Lo: 0x10eab, Hi: 0x10eac, Stride: 1},
		{Lo: 0x10efd, Hi: 0x10eff, Stride: 1},
		{Lo: 0x10f46, Hi: 0x10f50, Stride: 1},
		{Lo: 0x10f82, Hi: 0x10f85, Stride: 1},
		{Lo: 0x11070, Hi: 0x11070, Stride: 1},
		{Lo: 0x1133b, Hi: 0x1133b, Stride: 1},
		{Lo: 0x1145e, Hi: 0x1145e, Stride: 1},
		{Lo: 0x11839, Hi: 0x1183a, Stride: 1},
		{Lo: 0x11930, Hi: 0x11930, Stride: 1},
		{Lo: 0x11935, Hi: 0x11935, Stride: 1},
		{Lo: 0x11938, Hi: 0x11938, Stride: 1},
		{Lo: 0x1193d, Hi: 0x1193e, Stride: 1},
		{Lo: 0x11943, Hi: 0x11943, Stride: 1},
		{Lo: 0x119e0, Hi: 0x119e0, Stride: 1},
		{Lo: 0x11a34, Hi: 0x11a34, Stride: 1},
		{Lo: 0x11a47, Hi: 0x11a47, Stride: 1},
		{Lo: 0x11a99, Hi: 0x11a99, Stride: 1},
		{Lo: 0x11d42, Hi: 0x11d42, Stride: 1},
		{Lo: 0x11d44, Hi: 0x11d45, Stride: 1},
		{Lo: 0x11d97, Hi: 0x11d97, Stride: 1},
		{Lo: 0x11f41, Hi: 0x11f42, Stride: 1},
		{Lo: 0x16ff0, Hi: 0x16ff1, Stride: 1},
		{Lo: 0x1e08f, Hi: 0x1e08f, Stride: 1},
		{Lo: 0x1e130, Hi: 0x1e136, Stride: 1},
		{Lo: 0x1e2ae, Hi: 0x1e2ae, Stride: 1},
		{Lo: 0x1e2ec, Hi: 0x1e2ef, Stride: 1},
		{Lo: 0x1e4ec, Hi: 0x1e4ef, Stride: 1},
	},
}

// youngerCompatible are the characters that NFKC and NFKD of x/text take apart, and those of the library do not.
var youngerCompatible = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x32ff, Hi: 0x32ff, Stride: 1}, {Lo: 0xa7f2, Hi: 0xa7f4, Stride: 1}, {Lo: 0xab69, Hi: 0xab69, Stride: 1}},
	R32: []unicode.Range32{
		{Lo: 0x10781, Hi: 0x10785, Stride: 1},
		{Lo: 0x10787, Hi: 0x107b0, Stride: 1},
		{Lo: 0x107b2, Hi: 0x107ba, Stride: 1},
		{Lo: 0x1e030, Hi: 0x1e06d, Stride: 1},
		{Lo: 0x1f16c, Hi: 0x1f16c, Stride: 1},
		{Lo: 0x1fbf0, Hi: 0x1fbf9, Stride: 1},
	},
}

// normalizeText is text in the form, as the library tokenizers gives it.
func (f form) normalizeText(text string) string {
	if utf8.ValidString(text) && f.whole.IsNormalString(text) {
		return text
	}
	next := strings.IndexFunc(text, f.older)
	var out strings.Builder
	for next >= 0 {
		out.WriteString(f.normalizeAll(text[:next]))
		rest := strings.IndexFunc(text[next:], func(r rune) bool { return !f.older(r) })
		if rest < 0 {
			rest = len(text) - next
		}
		out.WriteString(text[next : next+rest])
		text = text[next+rest:]
		next = strings.IndexFunc(text, f.older)
	}
	out.WriteString(f.normalizeAll(text))
	return out.String()
}

func isYounger(r rune) bool { return r >= 0x07fd && unicode.Is(younger, r) }

func isYoungerCompatible(r rune) bool {
	return isYounger(r) || r >= 0x32ff && unicode.Is(youngerCompatible, r)
}
