package questions

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/corpus"
)

// JSONL is the type of the task whose questions are a file.
const JSONL = "jsonl"

// FileConfig names the file.
type FileConfig struct {
	// Questions is a JSONL file of questions, `{"question", "answers", "source", "split", "id", "meta"}`, the first two
	// needed.
	Questions string `koanf:"questions"`
	// Demonstrations is a JSONL file for the cold start, `{"question", "steps": [{"search", "info"}], "answer"}`: info is the tool's text.
	// A step may also have `tool`, its name, and `arguments`, a JSON object, in place of search. `messages`, a list of `{"role", "content"}`
	// that ends with the question, stand for a question that is the end of a conversation. "" has none, which needs
	// trainer.cold_start.steps to be 0. Defaults to "".
	Demonstrations string `koanf:"demonstrations"`
	// Tokenizer is a tokenizer.json; "" makes a tokenizer of the words of the questions and answers. Defaults to "".
	Tokenizer string `koanf:"tokenizer"`
}

// Validate reports every fault.
func (c FileConfig) Validate() error {
	if c.Questions == "" {
		return errors.New(`questions: "": the task needs a JSONL file of questions`)
	}
	return nil
}

// FileType is the task jsonl.
func FileType() tasks.Presetter {
	return tasks.WithPreset(tasks.New(JSONL, func() FileConfig { return FileConfig{} }, openFileTask), preset)
}

// preset is the search agent: tool calls in turn, then an answer.
func preset() tasks.Preset { return tasks.Preset{Agent: "search", Reward: "weighted"} }

// openFileTask reads the file.
func openFileTask(_ context.Context, cfg FileConfig, o tasks.Opening) (*tasks.Setup, error) {
	file, err := os.Open(cfg.Questions)
	if err != nil {
		return nil, fmt.Errorf("questions: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	asked, err := tasks.ReadQuestions(cfg.Questions, file)
	if err != nil {
		return nil, err
	}
	s, err := newSetup(o, &tasks.Dataset{Name: o.Name, Questions: asked}, cfg.Tokenizer)
	if err != nil || cfg.Demonstrations == "" {
		return s, err
	}
	shown, err := corpus.LoadDemonstrations(cfg.Demonstrations, s.Tokenizer, o.Seed)
	if err != nil {
		return nil, err
	}
	s.Demonstrations = shown
	return s, nil
}

// newSetup checks the questions and finds the tokenizer: the run's, else the file's, else a tokenizer of the questions' words.
func newSetup(o tasks.Opening, data *tasks.Dataset, file string) (*tasks.Setup, error) {
	if err := data.Validate(); err != nil {
		return nil, err
	}
	s := &tasks.Setup{Data: data}
	var err error
	switch {
	case file == "":
		s.Tokenizer, err = tasks.WordTokenizer(o, data)
	case o.Tokenizer != nil:
		s.Tokenizer = o.Tokenizer
	default:
		s.Tokenizer, err = tokenizer.Open(file)
	}
	if err != nil {
		return nil, fmt.Errorf("open the tokenizer: %w", err)
	}
	if tasks.OfWords(s.Tokenizer) {
		s.Phrase = tasks.AsQuestion
	}
	return s, nil
}
