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
	// OneBeside has a neighbour in place of one of them, BothBeside in place of both: three look-ups and four.
	OneBeside  = "one neighbour"
	BothBeside = "two neighbours"
	// Capital asks for the capital of a country's neighbour, as tasks/countries does: two look-ups.
	Capital = "capital"
)

// Sources are the kinds of question.
func Sources() []string { return []string{Codes, OneBeside, BothBeside, Capital} }

// About says what a source asks.
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

func (t term) text() string {
	if t.beside {
		return fmt.Sprintf("the %s of the %s of %s", t.field, neighbourField, t.country)
	}
	return fmt.Sprintf("the %s of %s", t.field, t.country)
}

// found is the code that looks up a field of a country.
func found(country, field string) string {
	return fmt.Sprintf(`%s ( " %s " ) . %s`, findName, country, field)
}

// code is the expression that has the term's value.
func (t term) code() string {
	if t.beside {
		return fmt.Sprintf("%s ( %s ) . %s", findName, found(t.country, neighbourField), t.field)
	}
	return found(t.country, t.field)
}

// place is the country that the term's fact is of.
func (t term) place(a places) place {
	p := a.of(t.country)
	if t.beside {
		return a.of(p.neighbour)
	}
	return p
}

// question is a term, or the product of two.
type question []term

func (q question) text() string {
	text := q[0].text()
	if len(q) == 2 {
		text += " times " + q[1].text()
	}
	return text + " ?"
}

// code is the expression that has the answer.
func (q question) code() string {
	code := q[0].code()
	if len(q) == 2 {
		code += " * " + q[1].code()
	}
	return code
}

func (q question) answer(a places) string {
	if q[0].field == capitalField {
		return q[0].place(a).capital
	}
	product := int64(1)
	for _, t := range q {
		product *= t.place(a).code
	}
	return strconv.FormatInt(product, 10)
}

// ask draws a question of a source: a country whose neighbour is asked for is one of those that have one.
func ask(rng *rand.Rand, source string, all, besides []string) question {
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

// questions draws those of each split, as many of each source where there are so many that differ.
func (c Config) questions(countries []*facts.Country, atlas places) map[tasks.Split][]schemas.Prompt {
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
				q := ask(rng, source, all, besides)
				if text := q.text(); !seen[text] && len(seen) < count {
					seen[text] = true
					out[split] = append(out[split], schemas.Prompt{
						ID: fmt.Sprintf("%s/%s/%s/%d", Name, split, source, len(seen)-1), Text: text, Answers: []string{q.answer(atlas)}, Source: source,
					})
				}
			}
		}
	}
	return out
}
