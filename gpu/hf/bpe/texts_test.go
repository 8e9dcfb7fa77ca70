package bpe

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// ranges are characters of every kind, each range assigned in full since Unicode 14, so that all tables know them.
func ranges() [][2]rune {
	return [][2]rune{
		{0x20, 0x7e},
		{0x20, 0x7e},
		{0x00, 0x1f},
		{0x7f, 0xff},
		{0x100, 0x24f},     // Latin
		{0x250, 0x2ff},     // IPA, modifiers
		{0x300, 0x36f},     // combining marks
		{0x391, 0x3a1},     // Greek
		{0x3a3, 0x3ff},     // Greek and Coptic
		{0x400, 0x52f},     // Cyrillic
		{0x561, 0x586},     // Armenian
		{0x591, 0x5c7},     // Hebrew points
		{0x5d0, 0x5ea},     // Hebrew
		{0x610, 0x61b},     // Arabic marks
		{0x620, 0x6ff},     // Arabic
		{0x710, 0x74a},     // Syriac
		{0x780, 0x7b1},     // Thaana
		{0x7c0, 0x7fa},     // NKo
		{0x900, 0x963},     // Devanagari
		{0x966, 0x96f},     // its digits
		{0x985, 0x98c},     // Bengali
		{0xa05, 0xa0a},     // Gurmukhi
		{0xa85, 0xa8d},     // Gujarati
		{0xb05, 0xb0c},     // Oriya
		{0xb85, 0xb8a},     // Tamil
		{0xbe6, 0xbfa},     // Tamil numbers
		{0xc05, 0xc0c},     // Telugu
		{0xc85, 0xc8c},     // Kannada
		{0xd05, 0xd0c},     // Malayalam
		{0xd85, 0xd96},     // Sinhala
		{0xe01, 0xe3a},     // Thai
		{0xe3f, 0xe5b},     // Thai marks and digits
		{0xea7, 0xebd},     // Lao
		{0xf00, 0xf47},     // Tibetan
		{0x1000, 0x10c5},   // Myanmar, Georgian
		{0x10d0, 0x1248},   // Georgian, Hangul Jamo, Ethiopic
		{0x13a0, 0x13f5},   // Cherokee
		{0x1400, 0x169c},   // Canadian syllables, Ogham with its space
		{0x16a0, 0x16f8},   // Runic
		{0x1780, 0x17dd},   // Khmer
		{0x1820, 0x1878},   // Mongolian
		{0x1e00, 0x1f15},   // Latin and Greek, precomposed
		{0x1f80, 0x1fb4},   // Greek, precomposed
		{0x2000, 0x2064},   // spaces, dashes, joiners, line separators
		{0x2070, 0x2071},   // superscripts
		{0x20a0, 0x20c0},   // currencies
		{0x20d0, 0x20f0},   // combining marks for symbols
		{0x2100, 0x218b},   // letterlike, number forms
		{0x2190, 0x2426},   // arrows, mathematics, technical
		{0x2460, 0x24ff},   // enclosed numbers and letters
		{0x2500, 0x27ff},   // boxes, dingbats
		{0x2c00, 0x2cf3},   // Glagolitic, Coptic
		{0x2d30, 0x2d67},   // Tifinagh
		{0x3000, 0x303f},   // CJK punctuation, the wide space
		{0x3041, 0x3096},   // Hiragana
		{0x3099, 0x30ff},   // voicing marks, Katakana
		{0x3105, 0x312f},   // Bopomofo
		{0x3131, 0x318e},   // Hangul
		{0x3400, 0x3500},   // Han, extension A
		{0x4e00, 0x9ffc},   // Han
		{0xa000, 0xa48c},   // Yi
		{0xa500, 0xa62b},   // Vai
		{0xabc0, 0xabed},   // Meetei Mayek
		{0xac00, 0xd7a3},   // Hangul syllables
		{0xe000, 0xe0ff},   // private use
		{0xf900, 0xfa6d},   // Han that NFC replaces
		{0xfb00, 0xfb06},   // ligatures
		{0xfb1d, 0xfb36},   // Hebrew that NFC takes apart
		{0xfe00, 0xfe19},   // variation selectors
		{0xfe20, 0xfe52},   // half marks
		{0xff01, 0xffbe},   // wide and narrow forms
		{0x10000, 0x1000b}, // Linear B
		{0x10400, 0x1049d}, // Deseret, Shavian
		{0x12000, 0x12399}, // cuneiform
		{0x13000, 0x1342e}, // hieroglyphs
		{0x1d100, 0x1d126}, // music
		{0x1d15e, 0x1d164}, // notes that NFC takes apart
		{0x1d400, 0x1d454}, // mathematical letters
		{0x1d7ce, 0x1d7ff}, // mathematical digits
		{0x1f1e6, 0x1f1ff}, // flags
		{0x1f300, 0x1f64f}, // emoji
		{0x1f3fb, 0x1f3ff}, // skin tones
		{0x1f680, 0x1f6d7}, // more emoji
		{0x20000, 0x200ff}, // Han, extension B
		{0xe0020, 0xe007f}, // tags
	}
}

func TestRangesAreAssigned(t *testing.T) {
	t.Parallel()
	assigned := []*unicode.RangeTable{unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.C}
	for _, r := range ranges() {
		for c := r[0]; c <= r[1]; c++ {
			require.True(t, unicode.In(c, assigned...), "%U", c)
		}
	}
}

// texts makes the same n texts for a seed whatever the version of Go.
func texts(seed uint64, n int) []string {
	rng := rand.New(rand.NewPCG(seed, 5))
	all := ranges()
	char := func(r [2]rune) string { return string(r[0] + rune(rng.IntN(int(r[1]-r[0])+1))) }
	spaces := []string{" ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\v", "\f", "\r", " \t "}
	words := []string{
		"The", " capital", " of", "It's", "WE'VE", "they'll", "don't", "I'M", "'s", "'\u017f", "'LL", "'re", "'Ve", "'d", "'", "''", "O'Neil", "tokenizer",
		"def f(x):\n", "    return", "->", "=>", "...", ";}\n", "!=", "\")", "#", " ###\n\n", "<html>", "{\"a\": [1, 2]}", "0", "12", "123", "1234", "3.14159", "1543714304",
		"\u00bd", "\u2168", "\u0663\u0664\u0665", "e\u0301", "\u0439", "\u0438\u0306", "\u1100\u1161\u11a8", "\u212b", "\u03d2\u0301", "\u0958", "\u0344",
		"\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\ufffd", "\u0000", "caf\u00e9", "cafe\u0301", "na\u00efve",
	}
	controls := []string{
		"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<mask>", "<sep>",
		"<late>", "<|endoftext|>!", "<mask><", "<|", "|>", "<|im_", "<", "<|im_end", "_caf\u00e9_", "<|endoftext|", "<mask",
	}
	broken := []string{"\xff", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x99", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xfe", "\xa0", "\xe3\x80"}
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		script := all[rng.IntN(len(all))]
		for range 1 + rng.IntN(24) {
			switch rng.IntN(16) {
			case 0, 1:
				b.WriteString(strings.Repeat(pick(spaces), 1+rng.IntN(4)))
			case 2, 3, 4, 5:
				b.WriteString(pick(words))
			case 6:
				b.WriteString(pick(controls))
			case 7:
				if i%3 == 0 {
					b.WriteString(pick(broken))
				}
			case 8, 9, 10, 11:
				b.WriteString(char(script))
			case 12:
				b.WriteString(strings.Repeat(char(all[rng.IntN(len(all))]), 1+rng.IntN(40)))
			default:
				b.WriteString(char(all[rng.IntN(len(all))]))
			}
		}
		out[i] = b.String()
	}
	return out
}

func TestTextsHoldWhatTheyMust(t *testing.T) {
	t.Parallel()
	all := strings.Join(texts(1, 10_000), "")
	for name, table := range unicode.Scripts {
		switch name { // no letter of theirs is in ranges
		case "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Han", "Hangul", "Hiragana", "Katakana", "Thai", "Devanagari", "Tamil", "Ethiopic", "Inherited", "Common":
			require.True(t, strings.ContainsFunc(all, func(r rune) bool { return unicode.Is(table, r) }), name)
		}
	}
	require.False(t, utf8.ValidString(all))
}
