package questions

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/tasks"
)

// JSONL is the type of the task whose questions are a file.
const JSONL = "jsonl"

// FileConfig names the file.
type FileConfig struct {
	// Questions is a JSONL file of questions, `{"question", "answers", "source", "split", "id", "meta"}`, the first two
	// needed.
	Questions string `koanf:"questions"`
	// Tokenizer is a tokenizer.json; "" makes one of the words of the questions and answers. Defaults to "".
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
type FileType struct{}

// Name is "jsonl".
func (FileType) Name() string { return JSONL }

// Config is a new FileConfig.
func (FileType) Config() any { return &FileConfig{} }

// Preset is the search agent: one tool call after another, then an answer.
func (FileType) Preset() tasks.Preset { return preset }

var preset = tasks.Preset{Agent: "search", Reward: "weighted"}

// Open reads the file.
func (FileType) Open(_ context.Context, o tasks.Opening) (*tasks.Setup, error) {
	cfg, ok := o.Config.(*FileConfig)
	if !ok {
		return nil, fmt.Errorf("task %s: the configuration is a %T: want *questions.FileConfig", o.Name, o.Config)
	}
	file, err := os.Open(cfg.Questions)
	if err != nil {
		return nil, fmt.Errorf("task %s: questions: %w", o.Name, err)
	}
	defer func() { _ = file.Close() }() // only read from
	asked, err := tasks.ReadQuestions(cfg.Questions, file)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", o.Name, err)
	}
	return setup(o, &tasks.Dataset{Name: o.Name, Questions: asked}, cfg.Tokenizer)
}

// setup checks the questions and finds the tokenizer: the run's, else the file's, else one of the questions' words.
func setup(o tasks.Opening, data *tasks.Dataset, file string) (*tasks.Setup, error) {
	if err := data.Validate(); err != nil {
		return nil, err
	}
	s := &tasks.Setup{Data: data, Tokenizer: o.Tokenizer}
	if o.Tokenizer != nil {
		return s, nil
	}
	var err error
	if file == "" {
		s.Tokenizer, err = tasks.NewTokenizer(data, o.Texts...)
	} else {
		s.Tokenizer, err = tokenizer.Load(file)
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: tokenizer: %w", o.Name, err)
	}
	return s, nil
}
