package ledger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// entry is a row of a page.
type entry struct {
	Colour string `json:"colour"`
	N      int    `json:"n"`
	M      int    `json:"m"`
}

// book is the world of a question.
type book struct {
	// Rule is the colour that counts: each page has it once.
	Rule  string    `json:"rule"`
	Pages [][]entry `json:"pages"`
}

// rows is how many entries a page has.
const rows = 4

// drawBook draws a book. The colours of a page differ, and a colour among them is the rule's.
func drawBook(rng *rand.Rand, rules, colours []string, high, pages int) book {
	b := book{Rule: rules[rng.IntN(len(rules))]}
	for range pages {
		page := make([]entry, rows)
		at := rng.IntN(rows)
		used := map[string]bool{b.Rule: true}
		for i := range page {
			page[i] = entry{Colour: b.Rule, N: 1 + rng.IntN(high), M: 1 + rng.IntN(high)}
			for i != at && used[page[i].Colour] {
				page[i].Colour = colours[rng.IntN(len(colours))]
			}
			used[page[i].Colour] = true
		}
		b.Pages = append(b.Pages, page)
	}
	return b
}

// ruleSum returns the sum of the entries of the rule's colour.
func (b book) ruleSum() int {
	total := 0
	for _, page := range b.Pages {
		for _, e := range page {
			if e.Colour == b.Rule {
				total += e.N * e.M
			}
		}
	}
	return total
}

// pageText returns a page as the policy reads it.
func pageText(page []entry) string {
	parts := make([]string, len(page))
	for i, e := range page {
		parts[i] = fmt.Sprintf("%s %d at %d", e.Colour, e.N, e.M)
	}
	return "page : " + strings.Join(parts, " , ") + " ."
}

const (
	questionText = "sum the rule over the pages ."
	noMore       = "no more pages ."
)

// ruleText returns the rule as the policy reads it.
func ruleText(colour string) string { return "count " + colour + " ." }

// Source is the kind of question with so many pages.
func Source(pages int) string { return strconv.Itoa(pages) + " pages" }

// newPrompt returns the book as tickets carry it.
func (b book) newPrompt(id string) schemas.Prompt {
	data, err := json.Marshal(b)
	if err != nil {
		panic(err) // numbers and words are always written
	}
	return schemas.Prompt{ID: id, Text: questionText, Answers: []string{strconv.Itoa(b.ruleSum())}, Source: Source(len(b.Pages)), World: data}
}

// drawQuestions draws the questions of a split: count of each number of pages.
func (c Config) drawQuestions(split tasks.Split, rules, colours []string, high, count int) []schemas.Prompt {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(len(split))<<32|uint64(split[0])))
	var out []schemas.Prompt
	for i := range count {
		for _, pages := range c.Pages {
			out = append(out, drawBook(rng, rules, colours, high, pages).newPrompt(fmt.Sprintf("%s/%s/%d/%d", Name, split, pages, i)))
		}
	}
	return out
}
