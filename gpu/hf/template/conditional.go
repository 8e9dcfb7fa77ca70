package template

import (
	"regexp"
	"strings"
)

// tag is a part of a template that is no text, with its content: an expression, a block or a comment.
var tag = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}`)

// rewriteConditionals rewrites the conditional expressions that the interpreter does not read, within brackets and after an
// else, with "and" and "or". These return an operand and do not evaluate the other, as Python's do.
func rewriteConditionals(source string) string {
	return tag.ReplaceAllStringFunc(source, func(text string) string {
		if strings.HasPrefix(text, "{#") {
			return text
		}
		return text[:2] + rewriteBrackets(text[2:len(text)-2], true) + text[len(text)-2:]
	})
}

// rewriteBrackets rewrites the content of an expression's brackets. outermost is true where the expression stands in no
// brackets itself.
func rewriteBrackets(text string, outermost bool) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		end := skipUnit(text, i)
		if strings.IndexByte("([{", text[i]) >= 0 && end > i+1 {
			b.WriteByte(text[i])
			for n, element := range splitElements(text[i+1 : end-1]) {
				if n > 0 {
					b.WriteByte(',')
				}
				b.WriteString(rewriteElement(element))
			}
			b.WriteByte(text[end-1])
		} else {
			b.WriteString(text[i:end])
		}
		i = end
	}
	text = b.String()
	if !outermost {
		return text
	}
	// The interpreter reads a single conditional here; a further conditional is in the words after its else.
	if at := findWord(text, "if", 0); at >= 0 {
		if other := findWord(text, "else", at); other >= 0 && findWord(text, "if", other) >= 0 {
			rest := strings.TrimRight(text[other+len("else"):], "- \t\n")
			return text[:other+len("else")] + " " + rewriteElement(rest) + " " + text[other+len("else")+len(rest):]
		}
	}
	return text
}

// rewriteElement rewrites an element within brackets.
func rewriteElement(text string) string {
	text = rewriteBrackets(text, false)
	at := findWord(text, "if", 0)
	other := findWord(text, "else", max(0, at))
	if at < 0 || other < 0 {
		return text
	}
	name, value := "", text[:at]
	for i := 0; i < len(value); i = skipUnit(value, i) { // a name of an argument, or a key
		if value[i] == ':' || value[i] == '=' && !strings.ContainsRune("=!<>", rune(value[max(0, i-1)])) && !strings.HasPrefix(value[i+1:], "=") {
			name, value = value[:i+1], value[i+1:]
			break
		}
	}
	condition, rest := text[at+len("if"):other], text[other+len("else"):]
	return name + " ((" + strings.TrimSpace(condition) + ") and [" + strings.TrimSpace(value) + "] or [" + strings.TrimSpace(rewriteElement(rest)) + "])[0]"
}

// splitElements cuts a text at its commas.
func splitElements(text string) (out []string) {
	from := 0
	for i := 0; i < len(text); i = skipUnit(text, i) {
		if text[i] == ',' {
			out, from = append(out, text[from:i]), i+1
		}
	}
	return append(out, text[from:])
}

// findWord is the place of a word outside of brackets and strings, from a place on; -1 without one.
func findWord(text, what string, from int) int {
	for i := from; i < len(text); i = skipUnit(text, i) {
		if strings.HasPrefix(text[i:], what) && !isNameByte(text, i-1) && !isNameByte(text, i+len(what)) {
			return i
		}
	}
	return -1
}

// isNameByte reports whether a character of a name stands there.
func isNameByte(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// skipUnit is the end of the unit that begins at a place: a string, brackets with their content, or a character.
func skipUnit(text string, at int) int {
	switch c := text[at]; c {
	case '"', '\'':
		for i := at + 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case c:
				return i + 1
			}
		}
		return len(text)
	case '(', '[', '{':
		for i := at + 1; i < len(text); i = skipUnit(text, i) {
			if strings.IndexByte(")]}", text[i]) >= 0 {
				return i + 1
			}
		}
		return at + 1 // it is not closed
	}
	return at + 1
}
