package template

import (
	"regexp"
	"strings"
)

// tag is a part of a template that is no text, with what stands in it: an expression, a block or a comment.
var tag = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}`)

// conditionals writes the conditional expressions that the interpreter does not read, which are those within brackets and those after an
// else, as the same with "and" and "or": these give one of their operands and leave the other alone, as Python's do.
func conditionals(source string) string {
	return tag.ReplaceAllStringFunc(source, func(text string) string {
		if strings.HasPrefix(text, "{#") {
			return text
		}
		return text[:2] + bracketed(text[2:len(text)-2], true) + text[len(text)-2:]
	})
}

// bracketed rewrites what stands in the brackets of an expression; outermost says that it stands in none itself.
func bracketed(text string, outermost bool) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		end := past(text, i)
		if strings.IndexByte("([{", text[i]) >= 0 && end > i+1 {
			b.WriteByte(text[i])
			for n, element := range elements(text[i+1 : end-1]) {
				if n > 0 {
					b.WriteByte(',')
				}
				b.WriteString(conditional(element))
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
	// The interpreter reads one conditional here: a further one is in the words after its else.
	if at := word(text, "if", 0); at >= 0 {
		if other := word(text, "else", at); other >= 0 && word(text, "if", other) >= 0 {
			rest := strings.TrimRight(text[other+len("else"):], "- \t\n")
			return text[:other+len("else")] + " " + conditional(rest) + " " + text[other+len("else")+len(rest):]
		}
	}
	return text
}

// conditional is an element within brackets.
func conditional(text string) string {
	text = bracketed(text, false)
	at := word(text, "if", 0)
	other := word(text, "else", max(0, at))
	if at < 0 || other < 0 {
		return text
	}
	name, value := "", text[:at]
	for i := 0; i < len(value); i = past(value, i) { // a name of an argument, or a key
		if value[i] == ':' || value[i] == '=' && !strings.ContainsRune("=!<>", rune(value[max(0, i-1)])) && !strings.HasPrefix(value[i+1:], "=") {
			name, value = value[:i+1], value[i+1:]
			break
		}
	}
	condition, rest := text[at+len("if"):other], text[other+len("else"):]
	return name + " ((" + strings.TrimSpace(condition) + ") and [" + strings.TrimSpace(value) + "] or [" + strings.TrimSpace(conditional(rest)) + "])[0]"
}

// elements are what commas part.
func elements(text string) (out []string) {
	from := 0
	for i := 0; i < len(text); i = past(text, i) {
		if text[i] == ',' {
			out, from = append(out, text[from:i]), i+1
		}
	}
	return append(out, text[from:])
}

// word is where a word stands outside of brackets and strings, from a place on; -1 where it does not.
func word(text, what string, from int) int {
	for i := from; i < len(text); i = past(text, i) {
		if strings.HasPrefix(text[i:], what) && !named(text, i-1) && !named(text, i+len(what)) {
			return i
		}
	}
	return -1
}

// named says whether a character of a name stands there.
func named(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// past is where what begins at a place ends: a string, brackets with what stands in them, or one character.
func past(text string, at int) int {
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
		for i := at + 1; i < len(text); i = past(text, i) {
			if strings.IndexByte(")]}", text[i]) >= 0 {
				return i + 1
			}
		}
		return at + 1 // it is not closed
	}
	return at + 1
}
