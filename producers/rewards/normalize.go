package rewards

import (
	"strings"
	"unicode"
)

// A Normalizer brings two spellings of the same answer together before they are compared.
type Normalizer func(string) string

// Normalizers by name: words is the demonstration's; squad is SQuAD's, which Search-R1, Agent-R1 and L0's evaluation
// share; alphanumeric is L0's in training.
func Normalizers() map[string]Normalizer {
	return map[string]Normalizer{"words": Words, "squad": SQuAD, "alphanumeric": Alphanumeric}
}

// Words lowers and leaves the runs of letters and digits of any alphabet, with a space between: where a tokenizer splits
// a hyphened name, the answer still equals it.
func Words(s string) string {
	return strings.Join(strings.FieldsFunc(lowerCase(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), " ")
}

// SQuAD lowers, deletes ASCII punctuation (leaving no space), puts a space for the words a, an and the, and makes each run of white space a
// single space (Rajpurkar et al., 2016, evaluate-v1.1).
func SQuAD(s string) string {
	var out strings.Builder
	for _, r := range lowerCase(s) {
		if !isPunctuation(r) {
			out.WriteRune(r)
		}
	}
	return collapseSpace(withoutArticles(out.String()))
}

// Alphanumeric lowers, deletes all but a to z, 0 to 9 and white space, and makes each run of white space a single space. Articles stay;
// other alphabets go.
func Alphanumeric(s string) string {
	var out strings.Builder
	for _, r := range lowerCase(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || isSpace(r) {
			out.WriteRune(r)
		}
	}
	return collapseSpace(out.String())
}

// isPunctuation reports whether a character is ASCII punctuation.
func isPunctuation(r rune) bool {
	return r < 128 && (unicode.IsPunct(r) || unicode.IsSymbol(r))
}

// withoutArticles puts a space for each word that is an article. Words are runs of letters, numbers and underscores.
func withoutArticles(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		n := strings.IndexFunc(s, func(r rune) bool { return !isWordRune(r) })
		if n < 0 {
			n = len(s)
		}
		switch w := s[:n]; w {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(w)
		}
		s = s[n:]
		n = strings.IndexFunc(s, isWordRune)
		if n < 0 {
			n = len(s)
		}
		out.WriteString(s[:n])
		s = s[n:]
	}
	return out.String()
}

// isWordRune reports whether a character belongs to a word.
func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

// isSpace reports whether a character is white space as Python has it: Unicode's, and the four ASCII separators.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// collapseSpace writes every run of white space as a single space.
func collapseSpace(s string) string { return strings.Join(splitWords(s), " ") }

// splitWords splits a text at white space.
func splitWords(s string) []string { return strings.FieldsFunc(s, isSpace) }

// trimSpace removes the white space around a text.
func trimSpace(s string) string { return strings.TrimFunc(s, isSpace) }

// lowerCase returns Unicode's full lower case, which differs from Go's in two letters: a dotted capital I keeps its dot, and a capital
// sigma that ends a word becomes a final sigma.
func lowerCase(s string) string {
	if !strings.ContainsAny(s, "\u0130\u03a3") {
		return strings.ToLower(s)
	}
	runes := []rune(s)
	var out strings.Builder
	for i, r := range runes {
		switch {
		case r == '\u0130':
			out.WriteString("i\u0307")
		case r == '\u03a3' && endsWord(runes, i):
			out.WriteRune('\u03c2')
		default:
			out.WriteRune(unicode.ToLower(r))
		}
	}
	return out.String()
}

// endsWord reports whether a cased letter stands before place i and none after it, marks and the like passed over.
func endsWord(runes []rune, i int) bool {
	before, after := i-1, i+1
	for before >= 0 && isIgnorable(runes[before]) {
		before--
	}
	for after < len(runes) && isIgnorable(runes[after]) {
		after++
	}
	return before >= 0 && isCased(runes[before]) && (after == len(runes) || !isCased(runes[after]))
}

// isCased reports whether a character has case.
func isCased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) ||
		unicode.In(r, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// isIgnorable reports whether case ignores a character.
func isIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:^`\u00a8\u00ad\u00b7\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}
