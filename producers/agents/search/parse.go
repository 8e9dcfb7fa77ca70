package search

import "slices"

// pair is the ids of a tag.
type pair struct{ open, close int32 }

// tags are the ids that give sampled tokens their meaning.
type tags struct{ search, info, answer pair }

// action is the kind of a turn.
type action int

const (
	invalid action = iota
	searches
	answers
)

// parseTurn returns the action of a turn's sampled tokens and the tokens between its tags. With opened, an answer tag stands open before
// them. A turn is valid when it is: any tokens that are no tag, a single opening tag, tokens that are no tag, and as its last token the
// closing tag. So a policy cannot write the tool's part itself, nor nest actions.
func (t tags) parseTurn(sampled []int32, opened bool) (action, []int32) {
	if len(sampled) == 0 {
		return invalid, nil
	}
	last := len(sampled) - 1
	kind, open := invalid, int32(0)
	switch sampled[last] {
	case t.search.close:
		kind, open = searches, t.search.open
	case t.answer.close:
		kind, open = answers, t.answer.open
	}
	start := 0
	if opened {
		if kind != answers {
			return invalid, nil
		}
	} else {
		start = slices.Index(sampled, open) + 1
		if kind == invalid || start == 0 {
			return invalid, nil
		}
	}
	thought, body := sampled[:max(0, start-1)], sampled[start:last]
	if len(body) == 0 || slices.ContainsFunc(thought, t.isTag) || slices.ContainsFunc(body, t.isTag) {
		return invalid, nil
	}
	return kind, body
}

func (t tags) isTag(id int32) bool {
	for _, tag := range []pair{t.search, t.info, t.answer} {
		if id == tag.open || id == tag.close {
			return true
		}
	}
	return false
}
