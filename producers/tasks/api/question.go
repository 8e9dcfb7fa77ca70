package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// The sources of questions.
const (
	Single = "single"
	Nested = "nested"
)

// Sources are the kinds of question.
func Sources() []string { return []string{Single, Nested} }

// About describes the questions of a source.
func About(source string) string {
	switch source {
	case Single:
		return "one function"
	case Nested:
		return "a function of another's result"
	}
	return ""
}

// world is the data of the functions of a question's world.
type world struct {
	// Key makes the values of this question its own.
	Key       uint64      `json:"key"`
	Functions []signature `json:"functions"`
}

// question is a question with its world.
type question struct {
	world world
	// first and second are the numbers of the inner function, third that of the outer.
	first, second, third int64
	nested               bool
}

// numbers are below: each is a word of the vocabulary.
const numbers = 100

// drawQuestion draws a question about functions of these names.
func drawQuestion(rng *rand.Rand, names []string, nested bool) question {
	q := question{
		world: world{Key: rng.Uint64() >> 1, Functions: []signature{drawSignature(rng, names[rng.IntN(len(names))])}},
		first: rng.Int64N(numbers), second: rng.Int64N(numbers), third: rng.Int64N(numbers), nested: nested,
	}
	for q.second == q.first {
		q.second = rng.Int64N(numbers) // the order of equal numbers could not be told
	}
	for nested && len(q.world.Functions) < 2 {
		if outer := drawSignature(rng, names[rng.IntN(len(names))]); outer.Name != q.innerSignature().Name {
			q.world.Functions = append(q.world.Functions, outer)
		}
	}
	return q
}

// innerSignature returns the signature of the inner function.
func (q question) innerSignature() signature { return q.world.Functions[0] }

// outerSignature returns the signature of the outer function.
func (q question) outerSignature() signature { return q.world.Functions[len(q.world.Functions)-1] }

// questionText returns the question as the policy reads it.
func (q question) questionText() string {
	asked := fmt.Sprintf("%d %s %d", q.first, q.innerSignature().Name, q.second)
	if q.nested {
		asked = fmt.Sprintf("( %s ) %s %d", asked, q.outerSignature().Name, q.third)
	}
	return asked + " ?"
}

// answerCode returns the expression that has the answer, by signatures that may be wrong.
func (q question) answerCode(inner, outer signature) string {
	made := inner.rightCall(strconv.FormatInt(q.first, 10), strconv.FormatInt(q.second, 10))
	if q.nested {
		made = outer.rightCall(made, strconv.FormatInt(q.third, 10))
	}
	return made
}

// rightAnswer returns the accepted answer.
func (q question) rightAnswer() string {
	v := q.innerSignature().valueOf(q.world.Key, q.first, q.second)
	if q.nested {
		v = q.outerSignature().valueOf(q.world.Key, v, q.third)
	}
	return strconv.FormatInt(v, 10)
}

// newPrompt returns the question as tickets carry it.
func (q question) newPrompt(id string) schemas.Prompt {
	data, err := json.Marshal(q.world)
	if err != nil {
		panic(err) // numbers and words are always written
	}
	source := Single
	if q.nested {
		source = Nested
	}
	return schemas.Prompt{ID: id, Text: q.questionText(), Answers: []string{q.rightAnswer()}, Source: source, World: data}
}

// drawQuestions draws the questions of a split, as many of each source.
func drawQuestions(seed uint64, split tasks.Split, names []string, count int) []schemas.Prompt {
	rng := rand.New(rand.NewPCG(seed, uint64(len(split))<<32|uint64(split[0])))
	var out []schemas.Prompt
	for i := range count {
		for _, source := range Sources() {
			out = append(out, drawQuestion(rng, names, source == Nested).newPrompt(fmt.Sprintf("%s/%s/%s/%d", Name, split, source, i)))
		}
	}
	return out
}
