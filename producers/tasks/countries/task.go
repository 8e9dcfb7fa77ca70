package countries

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
	"github.com/weir-rl/weir/schemas"
)

// Name is the task's name in tickets and configuration.
const Name = "countries"

// The kinds of question, found in Prompt.Source.
const (
	KindOneHop       = "1"  // a field of a country
	KindNeighbour    = "2n" // of its neighbour
	KindRegion       = "2r" // of the country of a region
	KindRegionThenBy = "3"  // of the neighbour of the country of a region
)

// About describes a kind of question; "" of any other.
func About(kind string) string {
	switch kind {
	case KindOneHop:
		return "a country"
	case KindNeighbour:
		return "a country's neighbour"
	case KindRegion:
		return "a region's country"
	case KindRegionThenBy:
		return "that country's neighbour"
	}
	return ""
}

const (
	questionTemplate = "what is the %s of %s ?"
	notFound         = "nothing found." // the words of the search tool
)

// fields are the facts that can be asked of a country.
var fields = [...]string{"capital", "currency", "code"}

// fieldOf returns a field of a country by its number.
func fieldOf(c *facts.Country, i int) string {
	return [...]string{c.Capital, c.Currency, c.Code}[i]
}

// Config says how the countries are divided and how demonstrations are made.
type Config struct {
	facts.Division `koanf:",squash"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig holds out 30 countries to choose by and 49 to report on.
func DefaultConfig() Config {
	return Config{Division: facts.DefaultDivision(), Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(c.Faults(10, 150, 50), check.Section("demo", c.Demo.Validate()))
}

// Task is the data set, its tokenizer and its demonstrations.
type Task struct {
	*tasks.Dataset
	Tokenizer tasks.Tokenizer
	*Demonstrations
}

// New makes the task, with the opening's tokenizer if there is any. The same Config makes the same task, byte for byte, on every machine.
func New(cfg Config, o tasks.Opening) (*Task, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("task countries: %w", err)
	}
	countries, err := facts.Load()
	if err != nil {
		return nil, fmt.Errorf("task countries: %w", err)
	}
	facts.Divide(countries, cfg.ValidationCountries, cfg.TestCountries, cfg.SplitSeed)
	data := &tasks.Dataset{Name: Name, Passages: newPassages(countries), Questions: newQuestions(countries)}
	if err := data.Validate(); err != nil {
		return nil, fmt.Errorf("task countries: %w", err)
	}
	tok, err := tasks.WordTokenizer(o, data, notFound)
	if err != nil {
		return nil, fmt.Errorf("task countries: %w", err)
	}
	demonstrations, err := newDemonstrations(cfg.Demo, tok, namePool(countries))
	if err != nil {
		return nil, fmt.Errorf("task countries: %w", err)
	}
	return &Task{Dataset: data, Tokenizer: tok, Demonstrations: demonstrations}, nil
}

// newPassages makes the passages about all countries and regions.
func newPassages(countries []*facts.Country) []tasks.Passage {
	var out []tasks.Passage
	for _, c := range countries {
		out = append(out, tasks.Passage{Title: c.Name, Text: countryPassage(c.Name, c.Capital, c.Currency, c.Code, c.Neighbour)})
	}
	for _, c := range countries {
		for _, region := range c.Regions {
			out = append(out, tasks.Passage{Title: region, Text: regionPassage(region, c.Name)})
		}
	}
	return out
}

func countryPassage(name, capital, currency, code, neighbour string) string {
	text := name + " has capital " + capital + ", currency " + currency + ", code " + code
	if neighbour != "" {
		text += ", neighbour " + neighbour
	}
	return text + "."
}

func regionPassage(region, country string) string {
	return region + " is a region of " + country + "."
}

// newQuestions asks everything that can be asked within each split.
func newQuestions(countries []*facts.Country) map[tasks.Split][]schemas.Prompt {
	byName := map[string]*facts.Country{}
	for _, c := range countries {
		byName[c.Name] = c
	}
	out := map[tasks.Split][]schemas.Prompt{}
	for _, c := range countries {
		ask := func(kind, subject string, of *facts.Country, of0 string) {
			for i, name := range fields {
				out[c.Split] = append(out[c.Split], schemas.Prompt{
					ID:      strings.Join([]string{Name, kind, name, of0}, "/"),
					Text:    fmt.Sprintf(questionTemplate, name, subject),
					Answers: []string{fieldOf(of, i)},
					Source:  kind,
				})
			}
		}
		ask(KindOneHop, c.Name, c, c.Name)
		neighbour := byName[c.Neighbour]
		if neighbour != nil {
			ask(KindNeighbour, "the neighbour of "+c.Name, neighbour, c.Name)
		}
		for _, region := range c.Regions {
			ask(KindRegion, "the country of "+region, c, region)
			if neighbour != nil {
				ask(KindRegionThenBy, "the neighbour of the country of "+region, neighbour, region)
			}
		}
	}
	return out
}

// namePool returns all names that occur, each as often as it is some country's name, capital, currency, code or region: made-up names are
// drawn from this pool.
func namePool(countries []*facts.Country) []string {
	var out []string
	for _, c := range countries {
		out = append(out, c.Name, c.Capital, c.Currency, c.Code)
		out = append(out, c.Regions...)
	}
	return out
}

// Fields are the facts that can be asked of a country.
func Fields() []string { return slices.Clone(fields[:]) }
