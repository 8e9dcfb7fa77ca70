package questions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tasks"
)

// HTTP is the type of the task whose questions a service has.
const HTTP = "http"

// maxPage bounds the name of a page, in bytes.
const maxPage = 1024

// ServiceConfig says which service has the questions. DefaultServiceConfig has the defaults.
type ServiceConfig struct {
	remote.Reference `koanf:",squash"`
	// MaxQuestions bounds the questions that are taken, > 0: more are an error. Defaults to 1000000.
	MaxQuestions int `koanf:"max_questions"`
	// Tokenizer is a tokenizer.json; "" makes a tokenizer of the words of the questions and answers. Defaults to "".
	Tokenizer string `koanf:"tokenizer"`
}

// DefaultServiceConfig takes a million questions, in pages of at most 16 MiB.
func DefaultServiceConfig() ServiceConfig {
	c := ServiceConfig{Reference: remote.DefaultReference(), MaxQuestions: 1_000_000}
	c.MaxBytes = 16 << 20
	return c
}

// Validate reports every fault.
func (c ServiceConfig) Validate() error {
	faults := []error{c.Reference.Validate()}
	if c.MaxQuestions <= 0 {
		faults = append(faults, fmt.Errorf("max_questions: %d: must be positive", c.MaxQuestions))
	}
	return errors.Join(faults...)
}

// Page is how the service answers a GET.
type Page struct {
	// Questions are the questions of the page, each an object as in a JSONL file.
	Questions []json.RawMessage `json:"questions"`
	// Next is the value of the query's page that gives the next page; "" after the last.
	Next string `json:"next,omitempty"`
}

// ServiceType is the task http.
func ServiceType() tasks.Presetter {
	return tasks.WithPreset(tasks.New(HTTP, DefaultServiceConfig, openServiceTask), preset)
}

// openServiceTask asks the service for all its questions. Every role of a run asks, and must be told the same.
func openServiceTask(ctx context.Context, cfg ServiceConfig, o tasks.Opening) (*tasks.Setup, error) {
	client, err := remote.New(cfg.Connection())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	client.WarnIfPlain(o.Log)
	rows, err := cfg.fetchPages(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask for the questions: %w", err)
	}
	asked, err := tasks.ReadQuestions(client.String(), bytes.NewReader(rows))
	if err != nil {
		return nil, err
	}
	return newSetup(o, &tasks.Dataset{Name: o.Name, Questions: asked}, cfg.Tokenizer)
}

// fetchPages fetches the questions of all pages, a question a line.
func (c *ServiceConfig) fetchPages(ctx context.Context, client *remote.Client) ([]byte, error) {
	var rows bytes.Buffer
	seen := map[string]bool{}
	count := 0
	for name := ""; ; {
		var query url.Values
		if name != "" {
			query = url.Values{"page": {name}}
		}
		var page Page
		if err := client.Get(ctx, query, func(data []byte) error {
			page = Page{}
			return remote.Strict(&page)(data)
		}); err != nil {
			return nil, err
		}
		if page.Questions == nil {
			return nil, fmt.Errorf("page %q: questions: missing", name)
		}
		if count += len(page.Questions); count > c.MaxQuestions {
			return nil, fmt.Errorf("page %q: max_questions is %d, and there are more", name, c.MaxQuestions)
		}
		for _, row := range page.Questions {
			if err := json.Compact(&rows, row); err != nil {
				return nil, fmt.Errorf("page %q: %w", name, err)
			}
			rows.WriteByte('\n')
		}
		if page.Next == "" {
			return rows.Bytes(), nil
		}
		// A service that names a page twice would be asked for ever.
		if len(page.Next) > maxPage || seen[page.Next] {
			return nil, fmt.Errorf("page %q: next: %s: want the name of a page that was not there yet", name, strconv.QuoteToASCII(page.Next[:min(len(page.Next), 80)]))
		}
		seen[page.Next] = true
		name = page.Next
	}
}
