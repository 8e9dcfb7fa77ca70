package bpe

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// safeCluster is the longest text, in bytes, that is given to x/text to normalize. In a longer text x/text may put a joiner
// (U+034F) after thirty combining characters, as the stream-safe format asks for and no tokenizer does.
const safeCluster = 32

// normalizeNFC is text in Unicode's normalization form C. Bytes that are no character stay as they are.
func normalizeNFC(text string) string {
	n := norm.NFC.QuickSpanString(text)
	if n == len(text) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for {
		out = append(out, text[:n]...)
		if text = text[n:]; text == "" {
			return string(out)
		}
		end := clusterEnd(text)
		if end <= safeCluster {
			out = norm.NFC.AppendString(out, text[:end])
		} else {
			out = append(out, composeMarks(text[:end])...)
		}
		text = text[end:]
		n = norm.NFC.QuickSpanString(text)
	}
}

// clusterEnd is where the second character begins that nothing before it can change or join.
func clusterEnd(text string) int {
	end := 0
	for end < len(text) {
		p := norm.NFC.PropertiesString(text[end:])
		if end > 0 && (p.Size() == 0 || p.BoundaryBefore()) {
			break
		}
		end += max(1, p.Size())
	}
	return end
}

// mark is a character of a decomposed text and its combining class: 0 begins anew. Of a byte that is no character rune is -1.
type mark struct {
	rune  rune
	class uint8
	raw   string
}

// composeMarks is normalizeNFC as Unicode's standard annex 15 has it, without a bound on the combining characters.
func composeMarks(text string) string {
	var marks []mark
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			marks = append(marks, mark{-1, 0, text[i : i+1]})
			i++
			continue
		}
		for _, d := range norm.NFD.String(text[i : i+size]) {
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
	var b []byte
	for _, m := range out {
		b = append(b, m.raw...)
	}
	return string(b)
}

// canCompose reports whether nothing blocks a character from the starter that since begins with: all characters between have a
// lower combining class, and none is a starter.
func canCompose(since []mark, m mark) bool {
	last := since[len(since)-1]
	return len(since) == 1 || last.class != 0 && last.class < m.class
}
