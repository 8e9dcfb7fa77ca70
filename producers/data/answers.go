package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-rl/weir/producers/data/table"
)

// Tests are the hidden unit tests of a programming task, as Prompt.Hidden has them in JSON.
type Tests struct {
	// Tests are run one after another. Each has input and output of a whole program, or of the function Entry where that is not
	// "".
	Tests []Test `json:"tests,omitempty"`
	Entry string `json:"entry,omitempty"`
	// Code are statements, such as assertions, that fail where the program is wrong.
	Code []string `json:"code,omitempty"`
}

// Test is a single test of Tests.
type Test struct {
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
}

// isBlank reports whether an answer is a text of nothing.
func isBlank(v any) bool {
	text, ok := v.(string)
	return ok && strings.TrimSpace(text) == ""
}

// readAnswers reads the accepted answers, or tests in their place. verl's extra_info may hold anything: a value there that
// looks like tests is read where the row has no answer, or where the mapping names it.
func (r *reader) readAnswers() {
	f, ok := r.findColumn(roleAnswer)
	if tests, there := r.findColumn(roleTests); there && (r.m.Columns[roleTests] != "" || r.schema != VeRL || !ok || isBlank(f.value)) {
		r.readTests(tests)
	}
	if r.fault != nil {
		return
	}
	if !ok {
		if r.e.Hidden == nil {
			r.refuseRow("", fmt.Errorf("no answer: there is no column %s: name it by columns.answer", strings.Join(usual[r.schema][roleAnswer], ", ")))
		}
		return
	}
	switch r.schema {
	case GSM8K:
		r.finalNumber(f)
	case MATH:
		r.boxedAnswer(f)
	default:
		if isBlank(f.value) && r.e.Hidden != nil {
			return // the tests judge in its place
		}
		r.acceptedAnswers(f.path, f.value)
	}
	for i, a := range r.e.Answers {
		if strings.TrimSpace(a) == "" && r.fault == nil {
			r.refuseRow(f.path, fmt.Errorf("answer %d is empty", i+1))
		}
	}
	if len(r.e.Answers) == 0 && r.e.Hidden == nil && r.fault == nil {
		r.refuseRow(f.path, errors.New("no answer in it"))
	}
}

// acceptedAnswers reads answers as data sets have them: a text, a number, a list, Search-R1's {"target": ...}, or the tests of a program.
func (r *reader) acceptedAnswers(path string, v any) {
	if text, ok := scalarText(v); ok {
		if inner, ok := testsText(text); ok {
			r.readTests(found{path, inner})
			return
		}
		r.e.Answers = append(r.e.Answers, text)
		return
	}
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			text, ok := scalarText(e)
			if !ok {
				r.refuseRow(fmt.Sprintf("%s[%d]", path, i), fmt.Errorf("%s: want text", table.Kind(e)))
				return
			}
			r.e.Answers = append(r.e.Answers, text)
		}
		return
	case map[string]any:
		if target, ok := v["target"]; ok {
			r.acceptedAnswers(path+".target", target)
			return
		}
		if _, ok := v["inputs"]; ok {
			r.readTests(found{path, v})
			return
		}
	}
	r.refuseRow(path, fmt.Errorf("%s: want text, a number or a list of them", table.Kind(v)))
}

// testsText reports whether an answer is the tests of a program, as PRIME's and DeepCoder's data have them: JSON within a text.
func testsText(text string) (any, bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[{") || !strings.Contains(text, `"input`) {
		return nil, false
	}
	wrapped, err := table.Object([]byte(`{"v": ` + text + `}`))
	if err != nil {
		return nil, false
	}
	return wrapped["v"], true
}

// readTests reads hidden tests: {"inputs": [...], "outputs": [...], "fn_name"}, a list of {"input", "output"}, statements, or any of
// these as JSON in a text.
func (r *reader) readTests(f found) {
	out := Tests{}
	if err := out.takeTests(f.value); err != nil {
		r.refuseRow(f.path, err)
		return
	}
	if entry, g := r.readText(roleEntry); g.path != "" && r.fault == nil {
		out.Entry = entry
	}
	if len(out.Tests)+len(out.Code) == 0 {
		r.refuseRow(f.path, errors.New("no test in it"))
		return
	}
	hidden, err := json.Marshal(out)
	if err != nil {
		r.refuseRow(f.path, err)
		return
	}
	r.e.Hidden = hidden
}

func (t *Tests) takeTests(v any) error {
	switch v := v.(type) {
	case string:
		if inner, ok := testsText(v); ok {
			return t.takeTests(inner)
		}
		if strings.TrimSpace(v) != "" {
			t.Code = append(t.Code, v)
		}
		return nil
	case []any:
		for i, e := range v {
			if err := t.addCase(e); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	case map[string]any:
		return t.addColumns(v)
	}
	return fmt.Errorf("%s: want tests: a list of {\"input\", \"output\"}, {\"inputs\": [...], \"outputs\": [...]}, or statements", table.Kind(v))
}

// addCase adds a test, which is a statement, or an object with input and output.
func (t *Tests) addCase(v any) error {
	if text, ok := v.(string); ok {
		t.Code = append(t.Code, text)
		return nil
	}
	fields, ok := v.(map[string]any)
	input, hasInput := fields["input"]
	output, hasOutput := fields["output"]
	if !ok || !hasInput || !hasOutput {
		return fmt.Errorf("%s: want a text or an object with input and output", table.Kind(v))
	}
	return t.addTest(input, output)
}

// addColumns are inputs and outputs side by side.
func (t *Tests) addColumns(fields map[string]any) error {
	inputs, in := fields["inputs"].([]any)
	outputs, out := fields["outputs"].([]any)
	if !in || !out {
		return t.addCase(fields)
	}
	if len(inputs) != len(outputs) {
		return fmt.Errorf("%d inputs and %d outputs", len(inputs), len(outputs))
	}
	t.Entry, _ = fields["fn_name"].(string)
	for i := range inputs {
		if err := t.addTest(inputs[i], outputs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tests) addTest(input, output any) error {
	in, err := json.Marshal(input)
	if err != nil {
		return err
	}
	out, err := json.Marshal(output)
	t.Tests = append(t.Tests, Test{in, out})
	return err
}

// finalNumber is the number after the last ####, without commas between digits.
func (r *reader) finalNumber(f found) {
	text, _ := f.value.(string)
	at := strings.LastIndex(text, "####")
	if at < 0 {
		r.refuseRow(f.path, errors.New("no #### before the answer"))
		return
	}
	answer := strings.NewReplacer(",", "", "$", "").Replace(text[at+4:])
	answer, _, _ = strings.Cut(strings.TrimSpace(answer), "\n")
	r.e.Answers = []string{strings.TrimSpace(answer)}
}

// boxedAnswer is the content of the last \boxed{}.
func (r *reader) boxedAnswer(f found) {
	text, _ := f.value.(string)
	answer, ok := LastBoxed(text)
	if !ok {
		r.refuseRow(f.path, errors.New(`no \boxed{} with the answer`))
		return
	}
	r.e.Answers = []string{strings.TrimSpace(answer)}
}

// LastBoxed is the content of the last \boxed{...} or \fbox{...} of a text, or of a \boxed without braces, the word after it. ok is
// false where there is none or its brace is not closed.
func LastBoxed(text string) (content string, ok bool) {
	at := max(strings.LastIndex(text, `\boxed`), strings.LastIndex(text, `\fbox`))
	if at < 0 {
		return "", false
	}
	rest := text[at:]
	rest = strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(rest, `\boxed`), `\fbox`), " ")
	if !strings.HasPrefix(rest, "{") {
		word, _, _ := strings.Cut(rest, "$")
		fields := strings.Fields(word)
		if len(fields) == 0 {
			return "", false
		}
		return fields[0], true
	}
	depth := 0
	for i, c := range rest {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return rest[1:i], true
			}
		}
	}
	return "", false
}

// secretWords mark a key that holds answers, wherever in the key's name any of them stands: gt_sql, target_answer,
// inputs_outputs.
var secretWords = []string{
	"answer", "answers", "gold", "golden", "gt", "truth", "target", "targets", "solution", "solutions", "expected", "label", "labels", "outputs", "tests",
	"evaluator", "evaluators", "validation",
}

// secretKeys hold answers though their words do not show it.
var secretKeys = []string{"reward_model", "test_cases", "test_list"}

// holdsAnswer reports whether a key's value is an answer by the key's name, in snake_case, kebab-case or camelCase. A name with
// a dot or a slash is a file's and holds none: a question may be about labels.csv. If a key is taken for an answer by mistake
// it is missing in a tool; the other mistake gives the answer to every reader of the tool's world.
//
// Invariant: what a prompt gives to tools never holds the answers.
func holdsAnswer(key string) bool {
	if slices.Contains(secretKeys, strings.ToLower(key)) {
		return true
	}
	if strings.ContainsAny(key, "./") {
		return false
	}
	var spaced strings.Builder
	lower := false
	for _, c := range key {
		if unicode.IsUpper(c) && lower {
			spaced.WriteByte(' ')
		}
		lower = unicode.IsLower(c)
		spaced.WriteRune(unicode.ToLower(c))
	}
	words := strings.FieldsFunc(spaced.String(), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(secretWords, word) })
}

// withoutAnswers is a value without the keys that hold answers, at any depth; nil where nothing is left.
func withoutAnswers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if holdsAnswer(k) {
				continue
			}
			if e = withoutAnswers(e); e != nil {
				out[k] = e
			}
		}
		if len(out) == 0 && len(v) > 0 {
			return nil
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, withoutAnswers(e))
		}
		return out
	}
	return v
}
