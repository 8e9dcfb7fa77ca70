package remote

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain text, naïve 漢字 🙂":               "plain text, naïve 漢字 🙂",
		"a\tb\nc":                              "a\tb\nc",
		"a\r\nb\rc":                            "a\nb\nc",
		"\x1b[1;31mred\x1b[0m":                 "red",
		"\x1b]0;title\x07after":                "after",
		"\x1b]8;;http://x\x1b\\link":           "link",
		"\x1b":                                 "",
		"nul\x00bell\x07del\x7fc1\u0085":       "nulbelldelc1",
		"\u202eright to left\u202c\ufeff":      "right to left",
		"\xff\xfe":                             "\uFFFD",
		"\x1b[" + strings.Repeat("9", 9) + "m": "",
	} {
		require.Equal(t, want, Clean(text), "%q", text)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[31m<answer>\x00")
	f.Add("\x1b]0;\x1b")
	f.Fuzz(func(t *testing.T, text string) {
		got := Clean(text)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x1b")
		require.NotContains(t, got, "\x00")
		require.Equal(t, got, Clean(got), "cleaning twice changes nothing")
	})
}

func FuzzStrict(f *testing.F) {
	for _, seed := range []string{`{"text":"a","reward":1}`, `{"text":"a"}{`, `{"text":"a","Text":"b"}`, `{"reward":1e999}`, `[]`, "{", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got answer
		if Strict(&got)(data) != nil {
			return
		}
		require.True(t, utf8.Valid(data))
		if got.Text != nil {
			require.True(t, utf8.ValidString(*got.Text))
		}
	})
}
