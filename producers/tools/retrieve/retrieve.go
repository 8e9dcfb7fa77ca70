// Package retrieve is the tool of that type: Search-R1's retrieval service, POST /retrieve, as a search tool. Any service that speaks it
// will do: Search-R1's own over an index of Wikipedia, or weir toolserver over a task's passages.
//
//	tools: {wiki: {type: retrieve, url: "http://127.0.0.1:8000/retrieve", top_k: 3}}
package retrieve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
)

// Name is the type's in a configuration.
const Name = "retrieve"

// Config says where the service is. DefaultConfig has the defaults.
type Config struct {
	remote.Reference `koanf:",squash"`
	// Name is the name by which the agent calls the tool. Defaults to search.
	Name string `koanf:"name"`
	// TopK is how many documents a search returns, > 0. Defaults to 3.
	TopK int `koanf:"top_k"`
}

// DefaultConfig asks for three documents.
func DefaultConfig() Config {
	return Config{Reference: remote.DefaultReference(), Name: tools.SearchName, TopK: 3}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		c.Reference.Validate(),
		check.Given("name", c.Name, "want what the agent calls the tool by"),
		check.Between("top_k", c.TopK, 1, 1000),
	)
}

// Texts are the texts that the tool may write beside the documents.
func (c *Config) Texts() []string { return []string{tools.NothingFound} }

// NoProcessReward says that a search rewards no turn.
func (c *Config) NoProcessReward() {}

// Request is the body of a search.
type Request struct {
	Queries []string `json:"queries"`
	// TopK is how many documents are asked for; 0 leaves it to the service.
	TopK int `json:"topk,omitempty"`
	// ReturnScores asks for documents with their scores.
	ReturnScores bool `json:"return_scores"`
}

// Document is a document that was found.
type Document struct {
	// Contents are the title, a line break and the text.
	Contents string `json:"contents"`
}

// Result is a document with its score, as a service answers that was asked for scores; a single query may be answered with its documents
// alone.
type Result struct {
	Document
	Score float64
}

// UnmarshalJSON reads either.
func (r *Result) UnmarshalJSON(data []byte) error {
	var scored struct {
		Document *Document   `json:"document"`
		Contents *string     `json:"contents"`
		Score    json.Number `json:"score"`
	}
	if err := json.Unmarshal(data, &scored); err != nil {
		return err
	}
	switch {
	case scored.Document != nil:
		r.Document = *scored.Document
	case scored.Contents != nil:
		r.Contents = *scored.Contents
	default:
		return errors.New("a document has no contents")
	}
	r.Score, _ = scored.Score.Float64() // a service that gives none scores 0
	return nil
}

// formatResults writes the documents as Search-R1 shows them to its policies.
func formatResults(results []Result) string {
	var out strings.Builder
	for i, r := range results {
		title, text, found := strings.Cut(remote.Clean(r.Contents), "\n")
		if !found {
			title, text = "", title
		}
		fmt.Fprintf(&out, "Doc %d(Title: %s) %s\n", i+1, strings.Trim(title, `"`), strings.TrimSpace(text))
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// Tool searches by the service.
type Tool struct {
	cfg    Config
	client *remote.Client
}

// New makes the tool; nothing is asked yet.
func New(cfg Config) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := remote.New(cfg.Connection())
	if err != nil {
		return nil, err
	}
	return &Tool{cfg, client}, nil
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: t.cfg.Name, Description: "Finds the documents that best match a query."}
}

// Call searches for its arguments.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	query := strings.TrimSpace(call.Arguments)
	if query == "" {
		return producers.Observation{}, errors.New("the query is empty")
	}
	digest := sha256.Sum256([]byte(query))
	var answer struct {
		Result [][]Result `json:"result"`
	}
	err := t.client.Post(ctx, fmt.Sprintf("%s/%s/%d/%x", call.Run, call.Episode, call.Index, digest[:8]),
		Request{[]string{query}, t.cfg.TopK, true}, func(data []byte) error {
			answer.Result = nil
			if err := json.Unmarshal(data, &answer); err != nil {
				return err
			}
			if len(answer.Result) != 1 {
				return fmt.Errorf("result: %d lists of documents for 1 query", len(answer.Result))
			}
			return nil
		})
	if err != nil {
		return producers.Observation{}, remote.OfTool(err)
	}
	found := answer.Result[0]
	if len(found) == 0 {
		return producers.Observation{Text: tools.NothingFound}, nil
	}
	return producers.Observation{Text: formatResults(found[:min(len(found), t.cfg.TopK)])}, nil
}

// Type is the kind of tool that a configuration names by type: retrieve.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool.
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	t, err := New(cfg)
	if err != nil {
		return nil, err
	}
	t.client.WarnIfPlain(o.Log)
	return t, nil
}

// Effects are none: a call may be made again.
func (*Tool) Effects() producers.Effects { return producers.EffectsNone }
