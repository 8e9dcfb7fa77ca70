package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-rl/weir/schemas"
)

// maxRowBytes bounds a line of a data file, so that a file without line ends is refused and not swallowed.
const maxRowBytes = 1 << 20

// maxFaults is how many bad rows are reported before the rest of the file is left unread.
const maxFaults = 10

// ReadFile reads a file with a function that is given its name for faults.
func ReadFile[T any](path string, read func(name string, r io.Reader) (T, error)) (T, error) {
	file, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer func() { _ = file.Close() }() // only read from
	return read(path, file)
}

// ReadCorpus reads passages, a JSON object a line:
//
//	{"title": "sweden", "text": "sweden has capital stockholm."}
//
// Empty lines are skipped. A title or text that is missing or blank, an unknown key, or a line that is not an
// object is refused, naming the file and the line.
func ReadCorpus(name string, r io.Reader) ([]Passage, error) {
	var passages []Passage
	err := Rows(name, r, func(row []byte) error {
		var p Passage
		if err := DecodeRow(row, &p); err != nil {
			return err
		}
		passages = append(passages, p)
		return errors.Join(Filled("title", p.Title), Filled("text", p.Text))
	})
	if err == nil && len(passages) == 0 {
		err = fmt.Errorf("%s: no passage in it", name)
	}
	if err != nil {
		return nil, err
	}
	return passages, nil
}

// questionRow is a line of a question file.
type questionRow struct {
	ID       string   `json:"id"`
	Question string   `json:"question"`
	Answers  []string `json:"answers"`
	Source   string   `json:"source"`
	Split    Split    `json:"split"`
	// Meta is further data for the task's own tools and rewards.
	Meta map[string]string `json:"meta"`
}

// ReadQuestions reads questions, a JSON object a line:
//
//	{"question": "what is the capital of sweden ?", "answers": ["stockholm"], "source": "1", "split": "train", "id": "q1"}
//
// The first two keys are needed. An object "meta" of texts goes to the task's reward as it is. A source is the kind of question, all kinds
// being asked equally often; without a source it is "all". An id without a value is made from the question, so it stays the same when rows
// move. The split is train, validation or test; if no row names a split, the questions are divided by a hash of their ids, 80, 10 and 10 in
// a hundred. If some rows name a split and others do not, the others are refused.
func ReadQuestions(name string, r io.Reader) (map[Split][]schemas.Prompt, error) {
	out := map[Split][]schemas.Prompt{}
	lines := map[string]int{} // by id
	line, without, with := 0, 0, 0
	err := Rows(name, r, func(data []byte) error {
		line++
		var row questionRow
		if err := DecodeRow(data, &row); err != nil {
			return err
		}
		if err := row.checkRow(); err != nil {
			return err
		}
		if row.ID == "" {
			row.ID = "q" + strconv.FormatUint(Hash(row.Source+"\x00"+row.Question), 36)
		}
		if lines[row.ID] > 0 {
			return fmt.Errorf("id %q: row %d has it too", row.ID, lines[row.ID])
		}
		lines[row.ID] = line
		if row.Split == "" {
			without++
		} else {
			with++
		}
		if with > 0 && without > 0 {
			return errors.New("split: some rows name one and others do not")
		}
		split := row.Split
		if split == "" {
			split = splitByHash(row.ID)
		}
		out[split] = append(out[split], schemas.Prompt{ID: row.ID, Text: row.Question, Answers: row.Answers, Source: row.Source, Meta: row.Meta})
		return nil
	})
	if err == nil && line == 0 {
		err = fmt.Errorf("%s: no question in it", name)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// checkRow reports every fault of the row.
func (r *questionRow) checkRow() error {
	faults := []error{Filled("question", r.Question)}
	if len(r.Answers) == 0 {
		faults = append(faults, errors.New("answers: missing or empty"))
	}
	for i, answer := range r.Answers {
		faults = append(faults, Filled(fmt.Sprintf("answers[%d]", i), answer))
	}
	switch r.Split {
	case "", Train, Validation, Test:
	default:
		faults = append(faults, fmt.Errorf("split: %q: must be train, validation or test", r.Split))
	}
	if r.Source == "" {
		r.Source = "all"
	}
	return errors.Join(faults...)
}

// splitByHash divides by a hash: adding or moving rows moves no other row to another split.
func splitByHash(id string) Split {
	switch n := Hash(id) % 10; {
	case n < 8:
		return Train
	case n == 8:
		return Validation
	}
	return Test
}

// Hash is a stable number of a text: the same on every machine and in every version.
func Hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // a hash's Write never fails
	return Spread(h.Sum64())  // FNV's low bits are weak on short text
}

// Spread spreads every bit of a number over all (the end of MurmurHash3).
func Spread(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Filled is an error where a key has no value but space.
func Filled(key, value string) error {
	if strings.TrimSpace(value) == "" {
		return fmt.Errorf("%s: missing or empty", key)
	}
	return nil
}

// DecodeRow reads a single JSON object and nothing after it. Keys it does not know are refused: a misspelt field would be lost.
func DecodeRow(row []byte, into any) error {
	if !utf8.Valid(row) {
		return errors.New("not UTF-8 text")
	}
	dec := json.NewDecoder(bytes.NewReader(row))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return explainRow(err, into)
	}
	if dec.More() {
		return errors.New("more than one JSON value on the line")
	}
	return nil
}

// explainRow describes the fault of a row in the words of its format, where encoding/json uses the words of Go.
func explainRow(err error, into any) error {
	var wrong *json.UnmarshalTypeError
	var torn *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("%s: want an object with the keys %s", wrong.Value, strings.Join(rowKeys(into), ", "))
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: %s: want %s", wrong.Field, wrong.Value, jsonKind(wrong.Type))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the line ends within its JSON object")
	case errors.As(err, &torn):
		return fmt.Errorf("not JSON at byte %d: %w", torn.Offset, err)
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return fmt.Errorf("%s: unknown key: want %s", strings.Trim(name, `"`), strings.Join(rowKeys(into), ", "))
	}
	return err
}

// rowKeys returns the keys that a row may have.
func rowKeys(into any) []string {
	var names []string
	for f := range reflect.TypeOf(into).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// jsonKind is a type in the words of JSON.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list, each entry " + jsonKind(t.Elem())
	case reflect.Map:
		return "an object whose values are strings"
	case reflect.Struct:
		return "an object with the keys " + strings.Join(rowKeys(reflect.New(t).Interface()), ", ")
	default:
		return "a string"
	}
}

// Rows calls fn with every line that is not blank and gathers its errors, as file:line: fault.
func Rows(name string, r io.Reader, fn func(row []byte) error) error {
	var faults []error
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 64<<10), maxRowBytes)
	line := 0
	for scanner.Scan() {
		line++
		row := scanner.Bytes()
		if line == 1 {
			row = bytes.TrimPrefix(row, []byte("\ufeff")) // the byte order mark that some editors begin a file with
		}
		row = bytes.TrimSpace(row)
		if len(row) == 0 {
			continue
		}
		if err := fn(row); err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s", name, line, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		if len(faults) == maxFaults {
			faults = append(faults, fmt.Errorf("%s: too many bad rows: the rest is not read", name))
			break
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		faults = append(faults, fmt.Errorf("%s:%d: the line is longer than %d bytes: one JSON object a line is wanted", name, line+1, maxRowBytes))
	} else if err != nil {
		faults = append(faults, fmt.Errorf("%s:%d: %w", name, line+1, err))
	}
	return errors.Join(faults...)
}
