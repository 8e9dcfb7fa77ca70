package weighted

import (
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers"
)

// The marks that published rewards read: those of a chat's turns, and the tags around what a search found.
func turnMarks() []string  { return []string{"<|im_start|>", "<|im_end|>"} }
func foundMarks() []string { return []string{"<information>", "</information>"} }

// textWithMarks is the text of a rollout for a reward that reads the marks in it. A mark that whoever spelt it had no right to, so that it
// would make a turn or a search that never was, has a space in it: a turn's marks are control tokens that the policy was given, or that end
// its own turn, and what was found is never the policy's to say. Where spellings and control tokens cannot be told apart, the text is as it
// is.
func textWithMarks(t *producers.Transcript) string {
	pieces := t.Pieces()
	if pieces == nil {
		return t.Text
	}
	var b strings.Builder
	for _, p := range pieces {
		switch {
		case p.Control && !p.Sampled, p.Last && p.Control && !slices.Contains(foundMarks(), p.Text):
			b.WriteString(p.Text)
		case p.Sampled:
			b.WriteString(disarmMarks(p.Text, slices.Concat(turnMarks(), foundMarks())))
		default:
			b.WriteString(disarmMarks(p.Text, turnMarks()))
		}
	}
	return b.String()
}

// disarmMarks returns a text with a space behind the first character of each mark.
func disarmMarks(text string, marks []string) string {
	for _, mark := range marks {
		text = strings.ReplaceAll(text, mark, mark[:1]+" "+mark[1:])
	}
	return text
}
