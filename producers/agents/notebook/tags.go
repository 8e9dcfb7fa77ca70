package notebook

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// tags is the notation of a vocabulary in which each tag is a token:
//
//	<bos> question <notes> notepad </notes> <summary> summary </summary> <code> cell </code> <output> output </output> <code> ...
type tags struct {
	tok                          producers.Tokenizer
	begin                        []int32
	code, out, notes, summarized pair
}

// pair is a tag's two tokens.
type pair struct{ open, close int32 }

// The names in the tags.
const (
	codeTag    = "code"
	outputTag  = "output"
	notesTag   = "notes"
	summaryTag = "summary"
)

// Tags are the tokens of the notation, for tasks that make a vocabulary.
func Tags() []string {
	var out []string
	for _, name := range []string{codeTag, outputTag, notesTag, summaryTag} {
		out = append(out, "<"+name+">", "</"+name+">")
	}
	return out
}

func newTags(cfg Config, tok producers.Tokenizer) (*tags, error) {
	var faults []error
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			faults = append(faults, fmt.Errorf("the vocabulary has no token %q", token))
		}
		return id
	}
	both := func(name string) pair { return pair{id("<" + name + ">"), id("</" + name + ">")} }
	t := &tags{tok: tok, code: both(codeTag), out: both(outputTag)}
	if cfg.Trim != TrimNone {
		t.notes = both(notesTag)
	}
	if cfg.Trim == TrimSoft {
		t.summarized = both(summaryTag)
	}
	if cfg.Begin != "" {
		t.begin = []int32{id(cfg.Begin)}
	}
	return t, errors.Join(faults...)
}

// encodeText encodes the text of a task or tool. A tag that stands in the text itself is left out: the output of a tool must not look like
// the end of its output, or like a cell.
func (t *tags) encodeText(text string) []int32 {
	encode := t.tok.Encode
	if plain, ok := t.tok.(tokenizer.PlainEncoder); ok && !tasks.OfWords(t.tok) {
		encode = plain.EncodeText
	}
	return slices.DeleteFunc(encode(text), func(id int32) bool { return t.isTag(id) || slices.Contains(t.begin, id) })
}

func (t *tags) isTag(id int32) bool {
	for _, p := range []pair{t.code, t.out, t.notes, t.summarized} {
		if p != (pair{}) && (id == p.open || id == p.close) {
			return true
		}
	}
	return false
}

// encodeBetween encodes a text between two tags.
func (t *tags) encodeBetween(p pair, text string) []int32 {
	return slices.Concat([]int32{p.open}, t.encodeText(text), []int32{p.close})
}

func (t *tags) openPage(p *page) (writing, []int32, error) {
	ids := slices.Concat(t.begin, t.encodeText(p.question))
	if p.notes != "" && t.notes != (pair{}) {
		ids = append(ids, t.encodeBetween(t.notes, p.notes)...)
	}
	if p.summary != "" {
		ids = append(ids, t.encodeBetween(t.summarized, p.summary)...)
	}
	for _, said := range p.turns {
		ids = slices.Concat(ids, said.sampled, t.encodeBetween(t.out, said.output))
	}
	if len(ids) == 0 {
		return nil, nil, errors.New("the question has no token")
	}
	return t, ids, nil
}

func (t *tags) showOutput(last turn) (step, error) {
	return step{ids: t.encodeBetween(t.out, last.output), context: t}, nil
}

// askSummary is the tag that opens a summary.
func (t *tags) askSummary(turn) (step, error) {
	return step{ids: []int32{t.summarized.open}, context: t}, nil
}

func (t *tags) turnOptions(most int) producers.GenerateOptions {
	return producers.GenerateOptions{Stop: []int32{t.code.close}, MaxTokens: most}
}

func (t *tags) readCell(sampled []int32, _ bool) (cell, fault string) {
	from, end := slices.Index(sampled, t.code.open), slices.Index(sampled, t.code.close)
	switch {
	case from < 0:
		return "", noCell
	case end < 0:
		return "", cutCell
	case end < from || slices.Contains(sampled[from+1:end], t.code.open):
		return "", severalCells
	}
	return t.tok.Decode(sampled[from+1 : end]), ""
}

func (t *tags) summaryPrompt() int { return 1 }

func (t *tags) summaryOptions(most int) producers.GenerateOptions {
	return producers.GenerateOptions{Stop: []int32{t.summarized.close}, MaxTokens: most}
}

func (t *tags) readSummary(sampled []int32) string {
	if end := slices.Index(sampled, t.summarized.close); end >= 0 {
		sampled = sampled[:end]
	}
	return t.tok.Decode(sampled)
}

func (t *tags) messageFormat() producers.Format {
	begin := ""
	if len(t.begin) > 0 {
		begin = t.tok.Decode(t.begin)
	}
	return producers.Format{Begin: begin, Stop: []string{"</" + codeTag + ">"}}
}

func (t *tags) encodeCell(code string) ([]int32, error) {
	return slices.Concat([]int32{t.code.open}, t.encodeText(code), []int32{t.code.close}), nil
}

func (t *tags) encodeSummary(text string) ([]int32, error) {
	return append(t.encodeText(text), t.summarized.close), nil
}
