// Package corpus is the task whose passages and questions are files of the user's own, in JSONL.
package corpus

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/tasks"
)

// Name is the type's in a configuration.
const Name = "corpus"

// Config names the files.
type Config struct {
	// Corpus is a JSONL file of passages, `{"title", "text"}`, which a search tool finds.
	Corpus string `koanf:"corpus"`
	// Questions is a JSONL file of questions, `{"question", "answers", "source", "split", "id"}`, the first two needed.
	Questions string `koanf:"questions"`
	// Demonstrations is a JSONL file for the cold start, `{"question", "steps": [{"search", "info"}], "answer"}`. ""
	// has none, which needs trainer.cold_start.steps to be 0. Defaults to "".
	Demonstrations string `koanf:"demonstrations"`
	// Tokenizer is a tokenizer.json; "" makes a tokenizer of the words of the passages, questions and answers. Defaults to "".
	Tokenizer string `koanf:"tokenizer"`
}

// Validate reports every fault.
func (c Config) Validate() error {
	var faults []error
	if c.Corpus == "" {
		faults = append(faults, errors.New("corpus: the task needs a JSONL file of passages"))
	}
	if c.Questions == "" {
		faults = append(faults, errors.New("questions: the task needs a JSONL file of questions"))
	}
	return errors.Join(faults...)
}

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, func() Config { return Config{} }, openTask), preset)
}

// preset is a run like the demonstration's.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: "search", Tools: []string{"search"}, Reward: "weighted",
		Settings: map[string]any{
			"model.max_positions": 192, "trainer.limits.max_turns": 6, "trainer.limits.max_tokens": 192,
			"trainer.steps": 50, "trainer.batch_groups": 16, "trainer.minibatches": 2, "trainer.cold_start.steps": 2000,
		},
	}
}

// openTask reads the files.
func openTask(_ context.Context, cfg Config, o tasks.Opening) (*tasks.Setup, error) {
	data, err := Load(o.Name, cfg.Corpus, cfg.Questions)
	if err != nil {
		return nil, err
	}
	tok, err := cfg.openTokenizer(o, data)
	if err != nil {
		return nil, err
	}
	setup := &tasks.Setup{Data: data, Tokenizer: tok}
	if tasks.OfWords(tok) {
		setup.Phrase = tasks.AsQuestion
	}
	if cfg.Demonstrations != "" {
		demonstrations, err := LoadDemonstrations(cfg.Demonstrations, tok, o.Seed)
		if err != nil {
			return nil, err
		}
		setup.Demonstrations = demonstrations
	}
	return setup, nil
}

// openTokenizer returns the run's tokenizer, else the file's, else a tokenizer of the words of the data.
func (c *Config) openTokenizer(o tasks.Opening, data *tasks.Dataset) (tasks.Tokenizer, error) {
	switch {
	case c.Tokenizer == "":
		return tasks.WordTokenizer(o, data)
	case o.Tokenizer != nil:
		return o.Tokenizer, nil
	}
	return tokenizer.Open(c.Tokenizer)
}

// Load reads a data set from a corpus file and a question file; see [tasks.ReadCorpus] and [tasks.ReadQuestions].
func Load(name, corpus, questions string) (*tasks.Dataset, error) {
	passages, corpusErr := tasks.ReadFile(corpus, tasks.ReadCorpus)
	asked, questionsErr := tasks.ReadFile(questions, tasks.ReadQuestions)
	if err := errors.Join(corpusErr, questionsErr); err != nil {
		return nil, fmt.Errorf("load task: %w", err)
	}
	d := &tasks.Dataset{Name: name, Passages: passages, Questions: asked}
	return d, d.Validate()
}
