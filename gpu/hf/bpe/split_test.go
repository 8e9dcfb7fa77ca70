package bpe

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"
)

func piecesOf(s splitter, text string) []string {
	out := []string{}
	s.splitText(text, func(piece string) { out = append(out, piece) })
	return out
}

func byHand(t testing.TB) map[string][2]splitter {
	t.Helper()
	out := map[string][2]splitter{}
	shared := newClasses()
	for name, pattern := range map[string]string{"qwen2": PatternQwen2, "llama3": PatternLlama3, "gpt2": PatternGPT2} {
		hand, err := newSplitter(pattern, shared)
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprintf("%T", hand), "expression")
		slow, err := newExpression(pattern)
		require.NoError(t, err)
		out[name] = [2]splitter{hand, slow}
	}
	return out
}

func TestSplittingByHandIsTheExpressions(t *testing.T) {
	t.Parallel()
	list := texts(42, 10_000)
	for name, pair := range byHand(t) {
		for _, text := range list {
			require.Equal(t, piecesOf(pair[1], text), piecesOf(pair[0], text), "%s: %+q", name, text)
		}
	}
}

// Nothing lies between two matches of the patterns that may say that it is to be removed.
func TestMatchesTakeAllOfAText(t *testing.T) {
	t.Parallel()
	list := texts(43, 2_000)
	for _, pattern := range []string{PatternQwen2, PatternLlama3, PatternGPT2} {
		require.True(t, takesAll(pattern))
		e, err := newExpression(pattern)
		require.NoError(t, err)
		for _, text := range list {
			matched := 0
			require.NoError(t, e.compiled.FindRunesMatches([]rune(text), 0, func(m regexp2.MatchView) bool {
				_, n, _ := m.GroupRange(0)
				matched += n
				return true
			}))
			require.Equal(t, utf8.RuneCountInString(text), matched, "%q: %+q", pattern, text)
		}
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text                string
		qwen2, llama3, gpt2 string // pieces with | between
	}{
		{"Hello, world", "Hello|,| world", "", ""},
		{"I'm you'LL WE'VE 'sx", "I|'m| you|'LL| WE|'VE| '|sx", "", "I|'m| you|'|LL| WE|'|VE| '|sx"},
		{"1234567 8", "1|2|3|4|5|6|7| |8", "123|456|7| |8", "1234567| 8"},
		{"(x):\n\n  y", "(x|):\n\n| | y", "", "(|x|):|\n\n | y"},
		{"-> ==", "->| ==", "", ""},
		{"a  \n \n  b", "a|  \n \n| | b", "", "a|  \n \n | b"},
		{"a \t b", "a| \t| b", "", ""},
		{"a\tb\u00a0c", "a|\tb|\u00a0c", "", "a|\t|b|\u00a0|c"},
		{"end   ", "end|   ", "", ""},
		{"\r\n", "\r\n", "", ""},
		{"<tool>\n{", "<tool|>\n|{", "", "<|tool|>|\n|{"},
		{"日本語、テスト", "日本語|、テスト", "", "日本語|、|テスト"},
		{"\xff\xfea", "\xff\xfe|a", "", "\xff\xfe|a"},
		{"\xffa", "\xffa", "", "\xff|a"},
		{"", "", "", ""},
	} {
		for name, want := range map[string]string{"qwen2": c.qwen2, "llama3": c.llama3, "gpt2": c.gpt2} {
			if want == "" {
				want = c.qwen2
			}
			require.Equal(t, want, strings.Join(piecesOf(byHand(t)[name][0], c.text), "|"), "%s: %q", name, c.text)
		}
	}
}

// Ignoring case, U+017F is an s.
func TestTheLongSIsAnS(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{"qwen2": {"it", "'\u017f", "x"}, "llama3": {"it", "'\u017f", "x"}, "gpt2": {"it", "'", "\u017fx"}} {
		for _, s := range byHand(t)[name] {
			require.Equal(t, want, piecesOf(s, "it'\u017fx"), name)
		}
	}
}

// A run of 256 kB is one piece, and neither its splitting nor its merging takes the square of its length.
func TestLongRuns(t *testing.T) {
	t.Parallel()
	tok := fixtures()[0].tokenizer(t)
	for _, unit := range []string{"a", " ", "\n", "日", "the", "!", "\xff", "e\u0301"} {
		text := strings.Repeat(unit, 1<<18/len(unit))
		want := nfc().normalizeText(text)
		require.Equal(t, want, tok.Decode(tok.Encode(text)), "%+q", unit)
		few := strings.Repeat(unit, 1000)
		for name, pair := range byHand(t) {
			require.Equal(t, piecesOf(pair[1], few), piecesOf(pair[0], few), name)
		}
	}
}

func TestSplitsFollowOneAnother(t *testing.T) {
	t.Parallel()
	first, err := newExpression(`\p{N}{1,3}`)
	require.NoError(t, err)
	second, err := newExpression(`[一-龥]+`)
	require.NoError(t, err)
	all := chain{first, second, &gpt2{newClasses()}}
	require.Equal(t, []string{"ab", " ", "123", "4", "漢字", "cd", "!"}, piecesOf(all, "ab 1234漢字cd!"))
	require.Equal(t, []string{"a", "1", "2", "b"}, piecesOf(digits{newClasses(), true}, "a12b"))
	require.Equal(t, []string{"a", "12", "b\xff", "\u0663\u00bd"}, piecesOf(digits{newClasses(), false}, "a12b\xff\u0663\u00bd"))
	require.Empty(t, piecesOf(chain{}, ""))
	require.Equal(t, []string{"x"}, piecesOf(chain{}, "x"))
}

func FuzzSplit(f *testing.F) {
	for _, text := range append(texts(3, 100), "a'S'\u017f \u212a") {
		f.Add(text)
	}
	pairs := byHand(f)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 {
			return
		}
		for name, pair := range pairs {
			require.Equal(t, piecesOf(pair[1], text), piecesOf(pair[0], text), "%s: %+q", name, text)
		}
	})
}
