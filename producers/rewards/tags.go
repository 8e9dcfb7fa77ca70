package rewards

import "strings"

// Blocks are the contents of <tag>...</tag>, in order, as they stand. A block ends at the first closing tag.
func Blocks(text, tag string) []string { return textsBetween(text, "<"+tag+">", "</"+tag+">") }

// textsBetween returns the texts between the marks open and close, none overlapping.
func textsBetween(text, open, closing string) []string {
	var out []string
	for {
		_, rest, found := strings.Cut(text, open)
		if !found {
			return out
		}
		content, after, found := strings.Cut(rest, closing)
		if !found {
			return out
		}
		out = append(out, content)
		text = after
	}
}

// LastAnswer is the content of the last <answer> block, trimmed, when the text has at least atLeast such blocks. Search-R1
// asks for two, as its prompt shows a block as an example.
func LastAnswer(text string, atLeast int) (answer string, ok bool) {
	blocks := Blocks(text, "answer")
	if len(blocks) < max(1, atLeast) {
		return "", false
	}
	return trimSpace(blocks[len(blocks)-1]), true
}

// FirstAnswer is the content of the first <answer> block, trimmed (Agent-R1).
func FirstAnswer(text string) (answer string, ok bool) {
	blocks := Blocks(text, "answer")
	if len(blocks) == 0 {
		return "", false
	}
	return trimSpace(blocks[0]), true
}
