package atlas

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
	"github.com/weir-rl/weir/schemas"
)

// The sources of questions.
const (
	// Codes asks for the product of two countries' codes, which takes two look-ups.
	Codes = "codes"
	// OneBeside has a neighbour in place of a country, BothBeside in place of both: three look-ups and four.
	OneBeside  = "one neighbour"
	BothBeside = "two neighbours"
	// Capital asks for the capital of a country's neighbour, as tasks/countries does: two look-ups.
	Capital = "capital"
)

// Sources are the kinds of question.
func Sources() []string { return []string{Codes, OneBeside, BothBeside, Capital} }

// About describes the questions of a source.
func About(source string) string {
	switch source {
	case Codes:
		return "the product of two codes"
	case OneBeside:
		return "one of them a neighbour's"
	case BothBeside:
		return "both of them neighbours'"
	case Capital:
		return "the capital of a neighbour"
	}
	return ""
}

// term is a fact that a question asks for: of a country, or of its neighbour.
type term struct {
	country string
	beside  bool
	field   string
}

// The fields.
const (
	capitalField   = "capital"
	codeField      = "code"
	neighbourField = "neighbour"
)

// termText returns the term in words.
func (t term) termText() string {
	if t.beside {
		return fmt.Sprintf("the %s of the %s of %s", t.field, neighbourField, t.country)
	}
	return fmt.Sprintf("the %s of %s", t.field, t.country)
}

// lookUpCode returns the code that looks up a field of a country.
func lookUpCode(country, field string) string {
	return fmt.Sprintf(`%s ( " %s " ) . %s`, findName, country, field)
}

// valueCode returns the expression that has the term's value.
func (t term) valueCode() string {
	if t.beside {
		return fmt.Sprintf("%s ( %s ) . %s", findName, lookUpCode(t.country, neighbourField), t.field)
	}
	return lookUpCode(t.country, t.field)
}

// placeOf returns the country that the term's fact is about.
func (t term) placeOf(a places) place {
	p := a.findPlace(t.country)
	if t.beside {
		return a.findPlace(p.neighbour)
	}
	return p
}

// question is a term, or the product of two.
type question []term

// questionText returns the question as the policy reads it.
func (q question) questionText() string {
	text := q[0].termText()
	if len(q) == 2 {
		text += " times " + q[1].termText()
	}
	return text + " ?"
}

// answerCode returns the expression that has the answer.
func (q question) answerCode() string {
	code := q[0].valueCode()
	if len(q) == 2 {
		code += " * " + q[1].valueCode()
	}
	return code
}

// rightAnswer returns the accepted answer.
func (q question) rightAnswer(a places) string {
	if q[0].field == capitalField {
		return q[0].placeOf(a).capital
	}
	product := int64(1)
	for _, t := range q {
		product *= t.placeOf(a).code
	}
	return strconv.FormatInt(product, 10)
}

// drawQuestion draws a question of a source: a country whose neighbour is asked for has a neighbour.
func drawQuestion(rng *rand.Rand, source string, all, besides []string) question {
	pick := func(of []string, other string) string {
		for {
			if name := of[rng.IntN(len(of))]; name != other {
				return name
			}
		}
	}
	if source == Capital {
		return question{{pick(besides, ""), true, capitalField}}
	}
	beside := [2]bool{source == BothBeside, source == BothBeside}
	if source == OneBeside {
		beside[rng.IntN(2)] = true
	}
	var q question
	other := ""
	for i := range beside {
		of := all
		if beside[i] {
			of = besides
		}
		other = pick(of, other)
		q = append(q, term{other, beside[i], codeField})
	}
	return q
}

// drawQuestions draws the questions of each split, as many of each source where there are so many that differ.
func (c Config) drawQuestions(countries []*facts.Country, atlas places) map[tasks.Split][]schemas.Prompt {
	out := map[tasks.Split][]schemas.Prompt{}
	for k, split := range tasks.Splits() {
		var all, besides []string
		for _, country := range countries {
			if country.Split != split {
				continue
			}
			all = append(all, country.Name)
			if country.Neighbour != "" {
				besides = append(besides, country.Name)
			}
		}
		if len(besides) < 2 {
			continue // the data set is refused where the train split has no question
		}
		count := c.HeldOut
		if split == tasks.Train {
			count = c.Questions
		}
		rng := rand.New(rand.NewPCG(c.Seed, uint64(k)))
		for _, source := range Sources() {
			seen := map[string]bool{}
			for range 4 * count { // draws: a small split has fewer questions than are wanted
				q := drawQuestion(rng, source, all, besides)
				if text := q.questionText(); !seen[text] && len(seen) < count {
					seen[text] = true
					out[split] = append(out[split], schemas.Prompt{
						ID: fmt.Sprintf("%s/%s/%s/%d", Name, split, source, len(seen)-1), Text: text, Answers: []string{q.rightAnswer(atlas)}, Source: source,
					})
				}
			}
		}
	}
	return out
}
