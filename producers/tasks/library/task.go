package library

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
	"github.com/weir-rl/weir/schemas"
)

// Name is the task's name in tickets and configuration.
const Name = "library"

const notFound = "nothing found." // the words of the search tool

// Task is the data set, its tokenizer and its demonstrations.
type Task struct {
	*tasks.Dataset
	Tokenizer tasks.Tokenizer
	*Demonstrations
}

// New makes the task, with the opening's tokenizer if there is any. The same Config makes the same task, byte for byte, on every machine.
func New(cfg Config, o tasks.Opening) (*Task, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("task library: %w", err)
	}
	countries, err := loadCountries(cfg)
	if err != nil {
		return nil, fmt.Errorf("task library: %w", err)
	}
	world := realPlaces(countries)
	data := &tasks.Dataset{Name: Name, Questions: map[tasks.Split][]schemas.Prompt{}}
	var all []*place
	for _, split := range tasks.Splits() {
		all = append(all, world[split]...)
		data.Questions[split] = drawQuestions(split, world[split])
	}
	data.Passages = newPassages(all, realShelf)
	if err := data.Validate(); err != nil {
		return nil, fmt.Errorf("task library: %w", err)
	}
	tok, err := tasks.WordTokenizer(o, data, notFound, wording)
	if err != nil {
		return nil, fmt.Errorf("task library: %w", err)
	}
	return &Task{Dataset: data, Tokenizer: tok, Demonstrations: newDemonstrations(cfg.Demo, tok, all)}, nil
}

// loadCountries reads the countries whose names cannot be taken for something else, and divides them.
func loadCountries(cfg Config) ([]*facts.Country, error) {
	countries, err := facts.Load()
	if err != nil {
		return nil, err
	}
	countries = slices.DeleteFunc(countries, func(c *facts.Country) bool {
		c.Regions = slices.DeleteFunc(c.Regions, isAmbiguous)
		return isAmbiguous(c.Name) || isAmbiguous(c.Capital)
	})
	divideCountries(countries, cfg.ValidationCountries, cfg.TestCountries, cfg.SplitSeed)
	return countries, nil
}
