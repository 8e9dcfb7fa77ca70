package rewards

import (
	"fmt"
	"slices"
	"strings"
)

// SearchR1 scores the last answer of a whole transcript, prompt included, as Search-R1 and verl do.
type SearchR1 struct {
	// AtLeast is how many <answer> blocks there must be: 2 where the prompt has an example (Search-R1), else 1 (verl).
	AtLeast int `koanf:"at_least"`
	// Substring asks only that a gold answer stands within the answer.
	Substring bool `koanf:"substring"`
	// Score is for a right answer, FormatScore for a wrong one; a missing answer gets 0.
	Score       float64 `koanf:"score"`
	FormatScore float64 `koanf:"format_score"`
	// TagLimit quarters the score of a right answer whose transcript has more opening or closing answer tags than
	// this (verl: 10). 0 means none.
	TagLimit int `koanf:"tag_limit"`
}

// Reward scores a transcript.
func (s SearchR1) Reward(transcript string, golds []string) float64 {
	answer, ok := LastAnswer(transcript, s.AtLeast)
	if !ok {
		return 0
	}
	match := ExactMatch
	if s.Substring {
		match = SubstringMatch
	}
	if match(SQuAD, answer, golds) == 0 {
		return s.FormatScore
	}
	tags := max(strings.Count(transcript, "<answer>"), strings.Count(transcript, "</answer>"))
	if s.TagLimit > 0 && tags > s.TagLimit {
		return s.Score / 4
	}
	return s.Score
}

// SearchR1Format scores the shape of a transcript beside its answer (Search-R1, qa_em_format).
type SearchR1Format struct {
	// AtLeast is how many <answer> blocks there must be.
	AtLeast int `koanf:"at_least"`
	// Score is for a right answer; StructureScore is taken from it when the shape is wrong, and is the reward of the right
	// shape without the right answer, RetrievalScore more if a search found a gold answer. FinalScore is for an
	// answer, wrong, in the wrong shape.
	Score          float64 `koanf:"score"`
	StructureScore float64 `koanf:"structure_score"`
	RetrievalScore float64 `koanf:"retrieval_score"`
	FinalScore     float64 `koanf:"final_score"`
}

// DefaultSearchR1Format has the authors' numbers.
func DefaultSearchR1Format() SearchR1Format {
	return SearchR1Format{AtLeast: 2, Score: 1, StructureScore: 0.2, RetrievalScore: 0.1, FinalScore: 0.1}
}

// Reward scores a transcript.
func (s SearchR1Format) Reward(transcript string, golds []string) float64 {
	valid, _ := ValidSequence(transcript)
	answer, answered := LastAnswer(transcript, s.AtLeast)
	right := answered && ExactMatch(SQuAD, answer, golds) == 1
	switch {
	case right && valid:
		return s.Score
	case right:
		return s.Score - s.StructureScore
	case valid && hasRetrievedGold(transcript, golds):
		return s.StructureScore + s.RetrievalScore
	case valid:
		return s.StructureScore
	case answered:
		return s.FinalScore
	default:
		return 0
	}
}

// hasRetrievedGold reports whether a gold answer stands within a search result.
func hasRetrievedGold(transcript string, golds []string) bool {
	return slices.ContainsFunc(Blocks(transcript, "information"), func(block string) bool {
		return SubstringMatch(SQuAD, trimSpace(block), golds) == 1
	})
}

const assistant = "<|im_start|>assistant"

// sequenceTags are the tags that ValidSequence knows.
var sequenceTags = []string{"think", "search", "information", "answer"}

// ValidSequence reports whether the text after the first assistant mark is think, then search and information and think as often as the
// agent likes, then answer, with nothing but white space between; and otherwise why not.
func ValidSequence(transcript string) (valid bool, reason string) {
	_, content, found := strings.Cut(transcript, assistant)
	if !found {
		return false, "Missing assistant marker"
	}
	content = strings.TrimLeftFunc(content, isSpace)
	for _, tag := range sequenceTags {
		opening, closing := strings.Count(content, "<"+tag+">"), strings.Count(content, "</"+tag+">")
		if opening != closing {
			return false, fmt.Sprintf("Mismatch in %s tags: %d opening vs %d closing tags", tag, opening, closing)
		}
	}
	state := "start"
	for len(content) > 0 {
		text, tag, rest := nextTag(content)
		if reason := describeMisplaced(text, state); reason != "" {
			return false, reason
		}
		if tag != "" {
			next := nextState(state, tag)
			if next == "" {
				return false, fmt.Sprintf("Unexpected tag %s in state %s", tag, state)
			}
			state = next
		}
		content = rest
	}
	if state != "end" {
		return false, "Incomplete sequence, ended in state " + state
	}
	return true, "Valid sequence format"
}

// nextTag splits at the first tag, "" if there is none.
func nextTag(content string) (text, tag, rest string) {
	at := len(content)
	for _, name := range sequenceTags {
		for _, t := range []string{"<" + name + ">", "</" + name + ">"} {
			if i := strings.Index(content, t); i >= 0 && i < at {
				at, tag = i, t
			}
		}
	}
	return content[:at], tag, content[at+len(tag):]
}

// describeMisplaced describes the fault of a text in a state, "" if there is none.
func describeMisplaced(text, state string) string {
	text = trimSpace(text)
	switch {
	case text == "" || strings.HasPrefix(state, "in_"):
		return ""
	case state == "end":
		return "Unexpected content in state end"
	default:
		return fmt.Sprintf("Unexpected content '%s' between tags (state: %s)", text, state)
	}
}

// nextState returns the state after a tag, "" where the tag has no place.
func nextState(state, tag string) string {
	switch {
	case tag == "<think>" && (state == "start" || state == "information"):
		return "in_think"
	case tag == "</think>" && state == "in_think":
		return "after_think"
	case tag == "<search>" && state == "after_think":
		return "in_search"
	case tag == "</search>" && state == "in_search":
		return "after_search"
	case tag == "<information>" && state == "after_search":
		return "in_information"
	case tag == "</information>" && state == "in_information":
		return "information"
	case tag == "<answer>" && state == "after_think":
		return "in_answer"
	case tag == "</answer>" && state == "in_answer":
		return "end"
	default:
		return ""
	}
}
