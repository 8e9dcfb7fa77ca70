package view

import "strings"

// Quote makes a text a single word for a POSIX shell.
func Quote(text string) string {
	plain := text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_./:=@,+", r):
			return false
		}
		return true
	})
	if plain {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
