// Package dataset is the task whose questions are data files as other systems have them: JSONL and Parquet in verl's, Agent-R1's,
// Search-R1's and HotpotQA's schemas, GSM8K, MATH, or any columns that the configuration names.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/data"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/corpus"
)

// Name is the type's in a configuration.
const Name = "dataset"

// Config names the files and says how they are read.
type Config struct {
	data.Config `koanf:",squash"`
	// Order sets the order in which the train split is asked.
	Order data.Order `koanf:"order"`
	// Corpus is a JSONL file of passages, `{"title", "text"}`, which a search tool finds beside the passages of the rows. Defaults to "".
	Corpus string `koanf:"corpus"`
	// Demonstrations is a JSONL file for the cold start, `{"question", "steps": [{"search", "info"}], "answer"}`. "" has none, which
	// needs trainer.cold_start.steps to be 0. Defaults to "".
	Demonstrations string `koanf:"demonstrations"`
	// Tokenizer is a tokenizer.json; "" makes a tokenizer of the words of the questions and answers. Defaults to "".
	Tokenizer string `koanf:"tokenizer"`
}

// Validate reports every fault.
func (c *Config) Validate() error {
	return check.All(c.Config.Validate(), check.Section("order", c.Order.Validate()))
}

// Type is the task dataset.
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, func() Config { return Config{Config: data.DefaultConfig(), Order: data.DefaultOrder()} }, openTask), preset)
}

// preset is the search agent and the reward for matching answers.
func preset() tasks.Preset { return tasks.Preset{Agent: "search", Reward: "weighted"} }

// openTask reads the files.
func openTask(ctx context.Context, cfg Config, o tasks.Opening) (*tasks.Setup, error) {
	given, err := cfg.givenTokenizer(o)
	if err != nil {
		return nil, err
	}
	if given == nil && cfg.Filter.MaxTokens > 0 {
		return nil, errors.New("filter.max_tokens: the task's tokenizer is made of its words: name one by model.folder or tokenizer, or bound the length by max_chars")
	}
	loaded, err := cfg.Load(ctx, func(text string) int { return len(given.Encode(text)) })
	if err != nil {
		return nil, err
	}
	if left := loaded.Left.String(); left != "" && o.Log != nil {
		o.Log.Info("rows of the data set were left out", "rows", left, "first_fault", errors.Join(loaded.Skipped[:min(1, len(loaded.Skipped))]...))
	}
	set := loaded.Dataset(o.Name)
	if cfg.Corpus != "" {
		passages, err := tasks.ReadFile(cfg.Corpus, tasks.ReadCorpus)
		if err != nil {
			return nil, fmt.Errorf("corpus: %w", err)
		}
		set.Passages = append(set.Passages, passages...)
	}
	if err := set.Validate(); err != nil {
		return nil, err
	}
	s := &tasks.Setup{Data: set, Tokenizer: given, Check: func(specs []producers.ToolSpec) error { return checkToolNames(loaded.Examples, specs) }}
	s.Where = func(id string) string {
		if at := slices.IndexFunc(loaded.Examples, func(e *data.Example) bool { return e.ID == id }); at >= 0 {
			return loaded.Examples[at].Where()
		}
		return ""
	}
	if s.Order, err = cfg.Order.Arrange(loaded.Examples, o.Seed); err != nil {
		return nil, err
	}
	if given == nil || o.Tokenizer != nil && cfg.Tokenizer == "" {
		if s.Tokenizer, err = tasks.WordTokenizer(o, set); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	if tasks.OfWords(s.Tokenizer) {
		s.Phrase = tasks.AsQuestion
	}
	if cfg.Demonstrations != "" {
		if s.Demonstrations, err = corpus.LoadDemonstrations(cfg.Demonstrations, s.Tokenizer, o.Seed); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// givenTokenizer returns the run's tokenizer, else the file's; nil where a tokenizer is made of the words.
func (c *Config) givenTokenizer(o tasks.Opening) (tasks.Tokenizer, error) {
	if o.Tokenizer != nil || c.Tokenizer == "" {
		return o.Tokenizer, nil
	}
	tok, err := tokenizer.Open(c.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return tok, nil
}

// checkToolNames refuses rows that name a tool which the task's episodes cannot call.
func checkToolNames(examples []*data.Example, specs []producers.ToolSpec) error {
	const most = 10
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	var faults []error
	for _, e := range examples {
		for _, tool := range e.Tools {
			if slices.Contains(names, tool) {
				continue
			}
			if len(faults) == most {
				return errors.Join(append(faults, errors.New("and more rows"))...)
			}
			have := "the task has none"
			if len(names) > 0 {
				have = "the task has " + strings.Join(names, ", ")
			}
			faults = append(faults, fmt.Errorf("%s: tool %q: %s", e.Where(), tool, have))
		}
	}
	return errors.Join(faults...)
}
