package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-rl/weir/producers/tasks"
)

// Written are written-out trajectories for the cold start of a task that has no generator of its own:
// an endless order in which every epoch shows each of them once. Safe for concurrent use.
type Written struct {
	rows   []tasks.Demonstration
	tokens [][]int32
	masks  [][]uint8
	seed   uint64
}

// demonstrationRow is a line of a demonstration file.
type demonstrationRow struct {
	// Role is whose it is, of an agent that plays several roles.
	Role     string `json:"role"`
	Question string `json:"question"`
	// Messages stand for Question where the question is the end of a conversation.
	Messages []tasks.Message `json:"messages"`
	Steps    []struct {
		Search string `json:"search"`
		// Tool and Arguments stand for Search where the tool has a name or takes JSON.
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Info      string          `json:"info"`
	} `json:"steps"`
	Answer string `json:"answer"`
}

// LoadDemonstrations reads a demonstration file; see [ReadDemonstrations].
func LoadDemonstrations(path string, tok tasks.Tokenizer, seed uint64) (*Written, error) {
	d, err := tasks.ReadFile(path, func(name string, r io.Reader) (*Written, error) { return ReadDemonstrations(name, r, tok, seed) })
	if err != nil {
		return nil, fmt.Errorf("load demonstrations: %w", err)
	}
	return d, nil
}

// ReadDemonstrations reads demonstrations, a JSON object a line:
//
//	{"question": "what is the capital of sweden ?", "steps": [{"search": "sweden", "info": "sweden has capital stockholm."}], "answer": "stockholm"}
//
// "messages", a list of {"role", "content"} that ends with the user's, stand for a question that is the end of a conversation. Steps may
// be missing. The last may be without info, and then the row without an answer: that step ends the episode, as a call of the tool finish
// does. A step may have "tool" and "arguments", a JSON object, in place of "search". A bad row is refused, naming the file and the line;
// so is a demonstration with a word that the tokenizer does not have.
func ReadDemonstrations(name string, r io.Reader, tok tasks.Tokenizer, seed uint64) (*Written, error) {
	d := &Written{seed: seed}
	err := tasks.Rows(name, r, func(data []byte) error {
		var row demonstrationRow
		if err := tasks.DecodeRow(data, &row); err != nil {
			return err
		}
		if err := row.checkRow(tok); err != nil {
			return err
		}
		d.addRow(&row, tok)
		return nil
	})
	if err == nil && len(d.tokens) == 0 {
		err = fmt.Errorf("%s: no demonstration in it", name)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// checkRow reports every fault of the row.
func (r *demonstrationRow) checkRow(tok tasks.Tokenizer) error {
	var faults []error
	check := func(key, text string) {
		err := tasks.Filled(key, text)
		if err == nil {
			if unknown := tasks.UnknownWords(tok, text); len(unknown) > 0 {
				err = fmt.Errorf("%s: the vocabulary has no word %q", key, unknown[0])
			}
		}
		faults = append(faults, err)
	}
	if len(r.Messages) > 0 {
		faults = append(faults, r.takeQuestion())
	}
	check("question", r.Question)
	for i, step := range r.Steps {
		arguments := step.Search
		if step.Arguments != nil {
			if arguments = string(step.Arguments); step.Search != "" {
				faults = append(faults, fmt.Errorf("steps[%d]: search and arguments: want either", i))
			}
		}
		check(fmt.Sprintf("steps[%d].search", i), arguments)
		if !r.endsByCall() || i < len(r.Steps)-1 {
			check(fmt.Sprintf("steps[%d].info", i), step.Info)
		}
	}
	if !r.endsByCall() {
		check("answer", r.Answer)
	}
	return errors.Join(faults...)
}

// takeQuestion takes the question from the end of the conversation.
func (r *demonstrationRow) takeQuestion() error {
	if r.Question != "" {
		return errors.New("question and messages: want either")
	}
	for i, m := range r.Messages {
		if !slices.Contains([]string{"system", "user", "assistant"}, m.Role) {
			return fmt.Errorf("messages[%d].role: %q: want system, user or assistant", i, m.Role)
		}
	}
	last := r.Messages[len(r.Messages)-1]
	if r.Question = last.Content; last.Role != "user" {
		return fmt.Errorf("messages: the last is the %s's: want the user's", last.Role)
	}
	return nil
}

// endsByCall says that the last step ends the episode.
func (r *demonstrationRow) endsByCall() bool {
	return r.Answer == "" && len(r.Steps) > 0 && r.Steps[len(r.Steps)-1].Info == ""
}

// addRow writes a row out as the search agent would have recorded it.
func (d *Written) addRow(row *demonstrationRow, tok tasks.Tokenizer) {
	var tokens []int32
	var mask []uint8
	write := func(acts uint8, open, text, end string) {
		from := len(tokens)
		tokens = append(tokens, tok.Encode(open+" "+text+" "+end)...)
		for range tokens[from:] {
			mask = append(mask, acts)
		}
	}
	shown := tasks.Demonstration{Role: row.Role, Question: row.Question, Messages: row.Messages, Answer: row.Answer}
	write(0, tasks.TokenBegin, row.Question, "")
	for _, step := range row.Steps {
		arguments := step.Search
		if step.Arguments != nil {
			arguments = string(step.Arguments)
		}
		shown.Steps = append(shown.Steps, tasks.Step{Tool: step.Tool, Arguments: arguments, Result: step.Info})
		write(1, tasks.TokenSearch, arguments, tasks.TokenSearchEnd)
		if step.Info != "" {
			write(0, tasks.TokenInfo, step.Info, tasks.TokenInfoEnd)
		}
	}
	if !row.endsByCall() {
		write(1, tasks.TokenAnswer, row.Answer, tasks.TokenAnswerEnd)
	}
	d.rows, d.tokens, d.masks = append(d.rows, shown), append(d.tokens, tokens), append(d.masks, mask)
}

// Rewrite writes the same demonstrations as another agent speaks.
func (d *Written) Rewrite(by tasks.Demonstrator) (tasks.Demonstrations, error) {
	out := &Written{seed: d.seed, rows: d.rows}
	for i, row := range d.rows {
		tokens, mask, err := by.Demonstrate(row)
		if err != nil {
			return nil, fmt.Errorf("demonstration %d, %q: %w", i+1, row.Question, err)
		}
		out.tokens, out.masks = append(out.tokens, tokens), append(out.masks, mask)
	}
	return out, nil
}

// Conversations counts the demonstrations that begin with a conversation.
func (d *Written) Conversations() int {
	n := 0
	for i := range d.rows {
		if len(d.rows[i].Messages) > 0 {
			n++
		}
	}
	return n
}

// Longest is how many tokens the longest demonstration has.
func (d *Written) Longest() int {
	most := 0
	for _, tokens := range d.tokens {
		most = max(most, len(tokens))
	}
	return most
}

// Len is how many different demonstrations there are.
func (d *Written) Len() int { return len(d.tokens) }

// Demonstration returns the tokens of the i-th demonstration and a mask with 1 where the agent, not the prompt or the tool, wrote the
// token. The caller must not change them.
func (d *Written) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	at := tasks.Shuffled(i, uint64(len(d.tokens)), d.seed)
	return d.tokens[at], d.masks[at]
}
