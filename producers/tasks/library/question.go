package library

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// question is a question that can be answered, with the searches that lead to its answer.
type question struct {
	text     string
	searches []string
	answer   string
}

// Kinds are the kinds of question, found in Prompt.Source. The number in a kind is how many searches lead to the answer.
func Kinds() []string { return []string{"1-hop", "2-hop", "3-hop", "4-hop"} }

// About says how far a kind of question leads; "" of any other.
func About(kind string) string {
	switch slices.Index(Kinds(), kind) {
	case 0:
		return "a country"
	case 1:
		return "one place on the way"
	case 2:
		return "two places on the way"
	case 3:
		return "three places on the way"
	}
	return ""
}

// drawQuestion draws a question about places whose answer takes that number of searches; false when the draw found no such question.
func drawQuestion(rng *rand.Rand, searches int, places []*place, in shelf) (question, bool) {
	var q question
	field, p := rng.IntN(len(fields)), drawOne(rng, places)
	subject, hops := p.name, searches-1
	if hops > 0 && rng.IntN(2) == 0 {
		if len(p.regions) == 0 {
			return q, false
		}
		region := drawOne(rng, p.regions)
		subject = "the country of " + region
		q.searches = append(q.searches, in[factRegion]+" "+region)
		hops--
	}
	passed := []*place{p}
	for range hops {
		d := rng.IntN(len(directions))
		next := p.next[d]
		if next == nil || slices.Contains(passed, next) {
			return q, false
		}
		subject = "the neighbour " + directions[d] + " of " + subject
		q.searches = append(q.searches, in[factNeighbour+d]+" "+p.name)
		p, passed = next, append(passed, next)
	}
	for _, other := range passed {
		// Whoever stops at a country on the way must not be right by chance.
		if other != p && other.values[field] == p.values[field] {
			return q, false
		}
	}
	q.searches = append(q.searches, in[field]+" "+p.name)
	q.text = "what is the " + fields[field] + " of " + subject + " ?"
	q.answer = p.values[field]
	return q, q.answer != ""
}

// How many questions of a kind there are at most.
const (
	mostTraining = 1500
	mostHeldOut  = 150
)

// drawQuestions draws the questions about the places of a split.
func drawQuestions(split tasks.Split, places []*place) []schemas.Prompt {
	most := mostHeldOut
	if split == tasks.Train {
		most = mostTraining
	}
	var out []schemas.Prompt
	for i, kind := range Kinds() {
		h := fnv.New64a()
		h.Write([]byte(kind + " " + string(split))) // it never fails
		rng := rand.New(rand.NewPCG(h.Sum64(), 0))
		seen := map[string]bool{}
		for range 20 * most {
			q, ok := drawQuestion(rng, i+1, places, realShelf)
			if !ok || seen[q.text] || len(seen) == most {
				continue
			}
			seen[q.text] = true
			out = append(out, schemas.Prompt{
				ID: strings.Join([]string{Name, kind, q.text}, "/"), Text: q.text, Answers: []string{q.answer}, Source: kind,
			})
		}
	}
	return out
}
