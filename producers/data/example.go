package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/producers/data/table"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Example is a row as a prompt.
type Example struct {
	schemas.Prompt
	// Split is the split that the row or its file names; "" is none.
	Split tasks.Split
	// Difficulty orders a curriculum, the easiest first; nil where the row has none. PassRate is the share of right answers that
	// some policy gave, 0 to 1.
	Difficulty, PassRate *float64
	// Tools are the tools that the row names.
	Tools []string
	// Group keeps rows in the same split; "" is the question's own.
	Group string
	// Passages are the passages that the row gives to be searched.
	Passages []tasks.Passage
	// File and At say where the row stands.
	File string
	At   int
	// given is true where the id is the row's own.
	given bool
}

// Where is file:row.
func (e *Example) Where() string { return fmt.Sprintf("%s:%d", e.File, e.At) }

// maxPrompt bounds a prompt in bytes with all that belongs to it: a ticket is a single message.
const maxPrompt = 4 << 20

// Read are the examples of a file. A row's fault comes as its *table.FaultError, and the next row follows; any other error is
// of the whole file, and the last.
func (m Mapping) Read(ctx context.Context, file string) iter.Seq2[*Example, error] {
	return func(yield func(*Example, error) bool) {
		for row, err := range table.Rows(ctx, file) {
			var e *Example
			if err == nil {
				e, err = m.readExample(file, row)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// readExample reads a row.
func (m Mapping) readExample(file string, row table.Row) (*Example, error) {
	r := reader{m: m, row: row, schema: m.Schema, e: &Example{File: file, At: row.At}}
	if r.schema == "" || r.schema == Auto {
		r.schema = detectSchema(row)
	}
	for _, step := range []func(){r.readPrompt, r.readAnswers, r.readSource, r.readSplit, r.readNumbers, r.readMeta, r.readWorld, r.readPassages, r.readID} {
		if step(); r.fault != nil {
			return nil, &table.FaultError{File: file, At: row.At, Field: r.field, Err: r.fault}
		}
	}
	if n := r.e.promptBytes(); n > maxPrompt {
		return nil, &table.FaultError{File: file, At: row.At, Err: fmt.Errorf("%d bytes with its tests and tools: a prompt may have %d", n, maxPrompt)}
	}
	return r.e, nil
}

func (e *Example) promptBytes() int {
	n := len(e.Text) + len(e.World) + len(e.Hidden)
	for _, a := range e.Answers {
		n += len(a)
	}
	for _, v := range e.Meta {
		n += len(v)
	}
	return n
}

// reader reads a row role by role, until one has a fault.
type reader struct {
	m      Mapping
	row    table.Row
	schema Schema
	e      *Example
	field  string
	fault  error
}

func (r *reader) refuseRow(field string, err error) { r.field, r.fault = field, err }

// findColumn is a role's column; a column that is named and missing is a fault.
func (r *reader) findColumn(role string) (found, bool) {
	f, ok, err := r.m.findRole(r.row, r.schema, role)
	if err != nil {
		r.refuseRow("", err)
	}
	return f, ok && r.fault == nil
}

// readText is a role's column as a line of text; a number is written out.
func (r *reader) readText(role string) (string, found) {
	f, ok := r.findColumn(role)
	if !ok {
		return "", f
	}
	s, ok := scalarText(f.value)
	if !ok {
		r.refuseRow(f.path, fmt.Errorf("%s: want text", table.Kind(f.value)))
	}
	return s, f
}

// scalarText is a text, a number or a truth value as text.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return string(v), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// readPrompt reads the messages, or the question, which comes first where the mapping names it.
func (r *reader) readPrompt() {
	_, asked := r.m.Columns[roleQuestion]
	if f, ok := r.findColumn(rolePrompt); ok && !asked {
		if _, is := f.value.(string); !is {
			r.readMessages(f)
			return
		}
		r.e.Text = f.value.(string)
	} else if r.fault == nil {
		text, f := r.readText(roleQuestion)
		if r.fault != nil {
			return
		}
		if r.e.Text = text; f.path == "" {
			r.refuseRow("", fmt.Errorf("no question: there is no column %s: name it by columns.question or columns.prompt",
				strings.Join(slices.Concat(usual[r.schema][roleQuestion], usual[r.schema][rolePrompt]), ", ")))
			return
		}
	}
	if r.fault == nil && strings.TrimSpace(r.e.Text) == "" {
		r.refuseRow("question", errors.New("missing or empty"))
	}
}

// readMessages reads a conversation: its last message is the question.
func (r *reader) readMessages(f found) {
	list, ok := f.value.([]any)
	if !ok || len(list) == 0 {
		r.refuseRow(f.path, fmt.Errorf("%s: want a list of messages, each with role and content", describeKind(f.value)))
		return
	}
	var out []tasks.Message
	for i, entry := range list {
		at := fmt.Sprintf("%s[%d]", f.path, i)
		fields, ok := entry.(map[string]any)
		if !ok {
			r.refuseRow(at, fmt.Errorf("%s: want an object with role and content", table.Kind(entry)))
			return
		}
		role, _ := fields["role"].(string)
		if !slices.Contains([]string{"system", "user", "assistant"}, role) {
			r.refuseRow(at+".role", fmt.Errorf("%q: want system, user or assistant", role))
			return
		}
		content, err := contentOf(fields["content"])
		if err != nil {
			r.refuseRow(at+".content", err)
			return
		}
		out = append(out, tasks.Message{Role: role, Content: content})
	}
	last := out[len(out)-1]
	if last.Role != "user" {
		r.refuseRow(f.path, fmt.Errorf("the last message is the %s's: want the user's", last.Role))
		return
	}
	if strings.TrimSpace(last.Content) == "" {
		r.refuseRow(f.path, errors.New("the last message is empty"))
		return
	}
	if r.e.Text = last.Content; len(out) > 1 {
		text, err := json.Marshal(out)
		if err != nil {
			r.refuseRow(f.path, err)
			return
		}
		r.setMeta(tasks.MetaMessages, string(text))
	}
}

// describeKind is a kind of value, or that a list is empty.
func describeKind(v any) string {
	if list, ok := v.([]any); ok && len(list) == 0 {
		return "an empty list"
	}
	return table.Kind(v)
}

// contentOf is a message's text, whole or in parts.
func contentOf(v any) (string, error) {
	parts, ok := v.([]any)
	if !ok {
		text, ok := v.(string)
		if !ok {
			return "", fmt.Errorf("%s: want text", table.Kind(v))
		}
		return text, nil
	}
	var out strings.Builder
	for i, p := range parts {
		fields, _ := p.(map[string]any)
		text, ok := fields["text"].(string)
		if kind, _ := fields["type"].(string); !ok || kind != "text" {
			return "", fmt.Errorf("[%d]: a part of type %q: only text is read", i, kind)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

func (r *reader) setMeta(key, value string) {
	if r.e.Meta == nil {
		r.e.Meta = map[string]string{}
	}
	r.e.Meta[key] = value
}

func (r *reader) readSource() {
	text, _ := r.readText(roleSource)
	if text = strings.TrimSpace(text); text == "" {
		text = r.m.Source
	}
	if text == "" {
		text = FileSource(r.e.File)
	}
	r.e.Source = text
}

// FileSource is the source of a file's rows which name none.
func FileSource(file string) string {
	name := filepath.Base(file)
	for _, ending := range []string{".gz", ".zst", ".jsonl", ".json", ".ndjson", ".parquet"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}

func (r *reader) readSplit() {
	text, f := r.readText(roleSplit)
	if text == "" || r.fault != nil {
		return
	}
	split, ok := ParseSplit(text)
	if !ok {
		r.refuseRow(f.path, fmt.Errorf("%q: want train, validation or test", text))
	}
	r.e.Split = split
}

// ParseSplit reads the name of a split as data sets write it.
func ParseSplit(name string) (tasks.Split, bool) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "train", "training":
		return tasks.Train, true
	case "validation", "val", "valid", "dev", "eval":
		return tasks.Validation, true
	case "test":
		return tasks.Test, true
	}
	return "", false
}

var digits = regexp.MustCompile(`-?\d+(\.\d+)?`)

// readNumbers reads the difficulty and the pass rate.
func (r *reader) readNumbers() {
	if text, f := r.readText(roleDifficulty); f.path != "" && text != "" && r.fault == nil {
		x, ok := difficultyLevel(text)
		if _, named := r.m.Columns[roleDifficulty]; !ok && named {
			r.refuseRow(f.path, fmt.Errorf("%q: want a number, a level such as \"Level 3\", or easy, medium or hard", text))
			return
		}
		if ok {
			r.e.Difficulty = &x
		}
	}
	if text, f := r.readText(rolePassRate); f.path != "" && text != "" && r.fault == nil {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0 && x <= 1) {
			r.refuseRow(f.path, fmt.Errorf("%q: want a share from 0 to 1", text))
			return
		}
		r.e.PassRate = &x
	}
}

// difficultyLevel reads a difficulty.
func difficultyLevel(text string) (float64, bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "easy":
		return 0, true
	case "medium":
		return 1, true
	case "hard":
		return 2, true
	}
	x, err := strconv.ParseFloat(digits.FindString(text), 64)
	return x, err == nil
}

// readMeta reads the ability and the columns meta_NAME.
func (r *reader) readMeta() {
	if text, _ := r.readText(roleAbility); text != "" {
		r.setMeta(roleAbility, text)
	}
	named := map[string]bool{}
	for role := range maps.Keys(r.m.Columns) {
		named[role] = true
	}
	for role := range maps.Keys(usual[r.schema]) {
		named[role] = true
	}
	for _, role := range slices.Sorted(maps.Keys(named)) {
		key, is := strings.CutPrefix(role, metaRole)
		if !is || r.fault != nil {
			continue
		}
		if f, ok := r.findColumn(role); ok {
			text, scalar := scalarText(f.value)
			if !scalar {
				data, err := json.Marshal(f.value)
				if err != nil {
					r.refuseRow(f.path, err)
					return
				}
				text = string(data)
			}
			r.setMeta(key, text)
		}
	}
	if text, _ := r.readText(roleGroup); r.fault == nil {
		r.e.Group = text
	}
}

// readID is the row's own, under its source, or follows from the source and the question, so that it stays when rows move.
func (r *reader) readID() {
	text, f := r.readText(roleID)
	if r.fault != nil {
		return
	}
	if text = strings.TrimSpace(text); f.path != "" && text != "" {
		r.e.ID, r.e.given = r.e.Source+"/"+text, true
		return
	}
	r.e.ID = "q" + strconv.FormatUint(tasks.Hash(r.e.Source+"\x00"+r.e.promptKey()), 36)
}

// promptKey is the question with the messages before it, as the agent is asked.
func (e *Example) promptKey() string {
	if messages := e.Meta[tasks.MetaMessages]; messages != "" {
		return messages
	}
	return e.Text
}

// askedText is the text by which lengths are measured: the question, or the contents of all messages of a conversation, a line each. The
// marks that a chat template writes are not counted.
func (e *Example) askedText() string {
	var messages []struct{ Content string }
	if text := e.Meta[tasks.MetaMessages]; text == "" || json.Unmarshal([]byte(text), &messages) != nil {
		return e.Text
	}
	lines := make([]string, len(messages))
	for i, m := range messages {
		lines[i] = m.Content
	}
	return strings.Join(lines, "\n")
}
