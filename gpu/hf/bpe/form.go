package bpe

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// safeCluster is the longest text, in bytes, that is given to x/text to normalize. In a longer text x/text may put a joiner
// (U+034F) after thirty combining characters, as the stream-safe format asks for and no tokenizer does.
const safeCluster = 32

// form is one of Unicode's normalization forms: the form that decomposes a character, and whether characters are composed again.
type form struct {
	whole, apart norm.Form
	compose      bool
	// older reports a character that the library leaves as it is.
	older func(rune) bool
}

// newForm is the form of a normalizer's type; false where the type is no form.
func newForm(kind string) (form, bool) {
	switch kind {
	case "NFC":
		return form{norm.NFC, norm.NFD, true, isYounger}, true
	case "NFD":
		return form{norm.NFD, norm.NFD, false, isYounger}, true
	case "NFKC":
		return form{norm.NFKC, norm.NFKD, true, isYoungerCompatible}, true
	case "NFKD":
		return form{norm.NFKD, norm.NFKD, false, isYoungerCompatible}, true
	}
	return form{}, false
}

// normalizeAll is text in the form, by the tables of x/text. Bytes that are no character stay as they are, and nothing joins them: x/text
// takes the first byte of a cut character together with the characters that follow it, and is not given any.
func (f form) normalizeAll(text string) string {
	if utf8.ValidString(text) {
		return f.normalizeCharacters(text)
	}
	var b strings.Builder
	begin := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			b.WriteString(f.normalizeCharacters(text[begin:i]))
			b.WriteByte(text[i])
			begin = i + 1
		}
		i += size
	}
	b.WriteString(f.normalizeCharacters(text[begin:]))
	return b.String()
}

// normalizeCharacters is normalizeAll of a text without a byte that is no character.
func (f form) normalizeCharacters(text string) string {
	n := f.whole.QuickSpanString(text)
	if n == len(text) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for {
		for n > 0 && n < len(text) && !f.isBoundary(text[n:]) { // a character that decomposes may join the character before it
			_, size := utf8.DecodeLastRuneInString(text[:n])
			n -= size
		}
		out = append(out, text[:n]...)
		if text = text[n:]; text == "" {
			return string(out)
		}
		end := f.clusterEnd(text)
		if end <= safeCluster {
			out = append(out, f.whole.String(text[:end])...)
		} else {
			out = append(out, f.arrangeMarks(text[:end])...)
		}
		text = text[end:]
		n = f.whole.QuickSpanString(text)
	}
}

// clusterEnd is where the second character begins that nothing before it can change or join.
func (f form) clusterEnd(text string) int {
	end := 0
	for end < len(text) {
		if end > 0 && f.isBoundary(text[end:]) {
			break
		}
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	return end
}

// isBoundary reports whether nothing before a text can change or join its first character.
func (f form) isBoundary(text string) bool {
	_, size := utf8.DecodeRuneInString(text)
	if f.apart == norm.NFKD {
		text, size = f.apart.String(text[:size]), 0
	}
	p := norm.NFC.PropertiesString(text)
	return p.Size() == 0 || size != 0 && p.Size() != size || p.BoundaryBefore()
}

// mark is a character of a decomposed text and its combining class: 0 begins anew. Of a byte that is no character rune is -1.
type mark struct {
	rune  rune
	class uint8
	raw   string
}

// arrangeMarks is normalizeAll as Unicode's standard annex 15 has it, without a bound on the combining characters.
func (f form) arrangeMarks(text string) string {
	var marks []mark
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			marks = append(marks, mark{-1, 0, text[i : i+1]})
			i++
			continue
		}
		for _, d := range f.apart.String(text[i : i+size]) {
			s := string(d)
			marks = append(marks, mark{d, norm.NFD.PropertiesString(s).CCC(), s})
		}
		i += size
	}
	for i := 0; i < len(marks); i++ {
		end := i
		for end < len(marks) && marks[end].class != 0 {
			end++
		}
		slices.SortStableFunc(marks[i:end], func(a, b mark) int { return int(a.class) - int(b.class) })
		i = end
	}
	if f.compose {
		marks = composeMarks(marks)
	}
	var b []byte
	for _, m := range marks {
		b = append(b, m.raw...)
	}
	return string(b)
}

// composeMarks joins the characters that a single character stands for.
func composeMarks(marks []mark) []mark {
	out := marks[:0]
	starter := -1 // of out
	for _, m := range marks {
		if starter >= 0 && canCompose(out[starter:], m) {
			if pair := norm.NFC.String(out[starter].raw + m.raw); utf8.RuneCountInString(pair) == 1 {
				r, _ := utf8.DecodeRuneInString(pair)
				out[starter].rune, out[starter].raw = r, pair
				continue
			}
		}
		if m.class == 0 {
			starter = -1
			if m.rune >= 0 {
				starter = len(out)
			}
		}
		out = append(out, m)
	}
	return out
}

// canCompose reports whether nothing blocks a character from the starter that since begins with: all characters between have a
// lower combining class, and none is a starter.
func canCompose(since []mark, m mark) bool {
	last := since[len(since)-1]
	return len(since) == 1 || last.class != 0 && last.class < m.class
}
