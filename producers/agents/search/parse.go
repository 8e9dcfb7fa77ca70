package search

import "slices"

// pair is the ids of a tag.
type pair struct{ open, close int32 }

// tags are the ids that give sampled tokens their meaning. tools are the tags of the tools that search.
type tags struct {
	tools        []pair
	info, answer pair
}

// action is the kind of a turn.
type action int

const (
	invalid action = iota
	searches
	answers
)

// parseTurn returns the action of a turn's sampled tokens, the tool that searches, and the tokens between its tags. With opened, an answer
// tag stands open before them. A turn is valid when it is: any tokens that are no tag, a single opening tag, tokens that are no tag, and as its last token the
// closing tag. So a policy cannot write the tool's part itself, nor nest actions.
func (t tags) parseTurn(sampled []int32, opened bool) (kind action, tool int, body []int32) {
	if len(sampled) == 0 {
		return invalid, 0, nil
	}
	last := len(sampled) - 1
	open := t.answer.open
	if sampled[last] == t.answer.close {
		kind = answers
	} else if tool = slices.IndexFunc(t.tools, func(p pair) bool { return p.close == sampled[last] }); tool >= 0 {
		kind, open = searches, t.tools[tool].open
	}
	start := 0
	if opened {
		if kind != answers {
			return invalid, 0, nil
		}
	} else {
		start = slices.Index(sampled, open) + 1
		if kind == invalid || start == 0 {
			return invalid, 0, nil
		}
	}
	thought := sampled[:max(0, start-1)]
	body = sampled[start:last]
	if len(body) == 0 || slices.ContainsFunc(thought, t.isTag) || slices.ContainsFunc(body, t.isTag) {
		return invalid, 0, nil
	}
	return kind, tool, body
}

func (t tags) isTag(id int32) bool {
	is := func(tag pair) bool { return id == tag.open || id == tag.close }
	return is(t.info) || is(t.answer) || slices.ContainsFunc(t.tools, is)
}
