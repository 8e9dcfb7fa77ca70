package selfplay

import (
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/agents/selfplay"
)

// chain is what a question of the task countries leads through: a document for each search, of which each names the next.
type chain struct {
	// titles are what the searches look for, documents what they find, in the words of the vocabulary.
	titles, documents []string
	// region says that the first is a region, and not a country.
	region bool
	// field is the asked fact of the last country, and answer its value there.
	field, answer string
}

// The words of documents and questions.
const (
	markRegion    = " is a region of "
	markNeighbour = " , neighbour "
	ofCountry     = "the country of "
	ofNeighbour   = "the neighbour of "
)

// spaceTokens returns a text with a space between each two tokens.
func spaceTokens(text string) string { return strings.Join(tokenizer.LowerWords(text), " ") }

// followChain goes through the documents that a question leads through, each found by its title; ok is false where a document is not there
// or does not name the next.
func followChain(question string, find func(title string) string) (c chain, ok bool) {
	question = strings.TrimSuffix(spaceTokens(question), " ?")
	what, _, ok := strings.Cut(strings.TrimPrefix(question, "what is the "), " of ")
	if !ok {
		return c, false
	}
	c.field = what
	title := question[strings.LastIndex(question, " of ")+len(" of "):]
	c.region = strings.Contains(question, ofCountry)
	var marks []string
	if c.region {
		marks = append(marks, markRegion)
	}
	if strings.Contains(question, ofNeighbour) {
		marks = append(marks, markNeighbour)
	}
	for _, mark := range append(marks, " "+c.field+" ") {
		document := find(title)
		_, rest, named := strings.Cut(document, mark)
		if !named {
			return c, false
		}
		c.titles, c.documents = append(c.titles, title), append(c.documents, document)
		title, _, _ = strings.Cut(strings.TrimSuffix(rest, " ."), " , ")
	}
	c.answer = title
	return c, true
}

// questionFrom asks for a field of the last document by way of the documents from a given document on: from the last document itself it
// takes a single search, from the document before it two.
func (c chain) questionFrom(from int, field string) string {
	subject := c.titles[from]
	for i := from; i < len(c.titles)-1; i++ {
		if i == 0 && c.region {
			subject = ofCountry + subject
		} else {
			subject = ofNeighbour + subject
		}
	}
	return "what is the " + field + " of " + subject + " ?"
}

// isAskable reports whether some question does not hold its answer, as each question about the capital of Monaco does.
func (c chain) isAskable() bool {
	for from := range c.titles {
		if !selfplay.GivesAway(c.questionFrom(from, c.field), c.answer) {
			return true
		}
	}
	return false
}

// joinDocuments returns all documents as a single text.
func (c chain) joinDocuments() string { return strings.Join(c.documents, " ") }

// proposerPrompt returns the prompt of a proposer.
func (c chain) proposerPrompt() string { return c.joinDocuments() + " ask for " + c.answer + " ." }

// wording are the words of a proposal beside the words of documents.
const wording = "ask for ."
