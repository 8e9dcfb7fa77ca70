package producers

import (
	"slices"
	"strings"
)

// Voter is a Reward that compares answers, so that a majority of samples counts them together. Of another reward,
// answers are the same whose words are, whatever their case and the white space between them.
type Voter interface {
	Reward
	// Ballot is the part of an answer that the reward reads, such as the content of its last \boxed{}; "" casts no vote.
	// It is asked of no empty answer.
	Ballot(answer string) string
	// Same reports whether two different ballots are the same answer. Neither is "".
	Same(a, b string) bool
}

// candidate is an answer that samples of a question voted for.
type candidate struct {
	// ballots are its spellings, the first spelling first.
	ballots []string
}

// election counts the votes of a question's samples.
type election struct{ candidates []candidate }

// candidateOf returns the candidate that a ballot counts for: the first spelling of its candidate, which is the first whose every spelling
// is the same to the voter. So a candidate never holds two answers that the voter tells apart, even where it holds both equal to a third.
func (e *election) candidateOf(by Voter, ballot string) string {
	if ballot == "" {
		return ""
	}
	for _, c := range e.candidates {
		if slices.Contains(c.ballots, ballot) {
			return c.ballots[0]
		}
	}
	for i := range e.candidates {
		if c := &e.candidates[i]; c.agreesWith(by, ballot) {
			c.ballots = append(c.ballots, ballot)
			return c.ballots[0]
		}
	}
	e.candidates = append(e.candidates, candidate{[]string{ballot}})
	return ballot
}

// agreesWith reports whether every spelling of the candidate is the same as the ballot to the voter.
func (c *candidate) agreesWith(by Voter, ballot string) bool {
	for _, b := range c.ballots {
		if !by.Same(b, ballot) {
			return false
		}
	}
	return true
}

// countVotes fills in the votes of samples, by question and in their order.
func countVotes(samples []EvalSample, reward Reward) {
	by, ok := reward.(Voter)
	if !ok {
		by = byWords{reward}
	}
	questions := map[string]*election{}
	for i := range samples {
		s := &samples[i]
		if s.ExactMatch == nil || s.Answer == "" {
			continue
		}
		if questions[s.ID] == nil {
			questions[s.ID] = &election{}
		}
		s.Vote = questions[s.ID].candidateOf(by, by.Ballot(s.Answer))
	}
}

// byWords is for rewards that do not vote.
type byWords struct{ Reward }

func (byWords) Ballot(answer string) string {
	return strings.ToLower(strings.Join(strings.Fields(answer), " "))
}

func (byWords) Same(a, b string) bool { return a == b }
