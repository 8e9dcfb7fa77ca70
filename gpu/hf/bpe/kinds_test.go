package bpe

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
)

// Accents and punctuation are those of the library tokenizers at each character, whatever tables this release of Go has.
func TestKindsOfCharactersAreThoseOfTheTokenizersLibrary(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "asks for each character")
	said := realpython.Run(t, realpython.Interpreter(t, "tokenizers"), "testdata/kinds.py")
	accents, punctuation, _ := strings.Cut(strings.TrimSpace(said), "\n")
	for list, is := range map[string]func(rune) bool{accents: isAccent, punctuation: isPunctuation} {
		var have []string
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if utf8.ValidRune(r) && is(r) {
				have = append(have, fmt.Sprint(int(r)))
			}
		}
		require.Equal(t, strings.Fields(list), have)
	}
}
