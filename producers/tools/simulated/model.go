package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
)

// Weir's own prompts, after the prompts of ZeroSearch's appendix.
const (
	usefulPrompt = `You stand in for a web search engine. Write {documents} short documents that the engine finds for a query, and nothing else: each on a line of its own, beginning with "Doc 1: ", "Doc 2: " and so on, of about 30 words.

The user wants to answer this question: {question}
An accepted answer is: {answers}
The documents are useful: they match the query, and hold what the user needs to come closer to the answer.

Query: {query}
Useful documents:
`
	noisyPrompt = `You stand in for a web search engine. Write {documents} short documents that the engine finds for a query, and nothing else: each on a line of its own, beginning with "Doc 1: ", "Doc 2: " and so on, of about 30 words.

The user wants to answer this question: {question}
An accepted answer is: {answers}
The documents are noisy: they look as if they matched the query, and neither hold the answer nor help to find it.

Query: {query}
Noisy documents:
`
)

// model has a language model write documents.
type model struct {
	cfg    Config
	client *remote.Client
	// wrote: the endpoint has written documents, so that the model is there and max_tokens has room for them.
	wrote atomic.Bool
}

func newModel(cfg Config, log *slog.Logger) (*model, error) {
	service := cfg.Connection()
	service.URL = strings.TrimSuffix(service.URL, "/") + "/chat/completions"
	client, err := remote.New(service)
	if err != nil {
		return nil, err
	}
	client.WarnIfPlain(log)
	return &model{cfg: cfg, client: client}, nil
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type request struct {
	Model       string    `json:"model"`
	Messages    []message `json:"messages"`
	Temperature float64   `json:"temperature"`
	MaxTokens   int       `json:"max_tokens"`
	Seed        uint64    `json:"seed"`
}

type answer struct {
	Choices []struct {
		Message      message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
}

// writeDocuments asks the model. Whatever goes wrong wraps [producers.ErrUnavailable], but for errors that the query may have caused: where
// the endpoint has written documents before, a request that it finds at fault, or fails at while it answers others, and an answer that runs
// on without a document, are a search that finds nothing.
func (m *model) writeDocuments(ctx context.Context, a asked) (string, error) {
	body := request{
		Model: m.cfg.Model, Messages: []message{{"user", m.promptFor(a)}}, Temperature: m.cfg.Temperature, MaxTokens: m.cfg.MaxTokens,
		Seed: a.seed >> 12, // within the range of JSON's numbers
	}
	var out answer
	err := m.client.Post(ctx, a.key, body, func(data []byte) error {
		out = answer{}
		if err := json.Unmarshal(data, &out); err != nil {
			return err
		}
		if len(out.Choices) == 0 {
			return errors.New("choices: none")
		}
		if c := out.Choices[0]; c.FinishReason == "length" && cutDocuments(c.Message.Content, m.cfg.TopK) == "" && !m.wrote.Load() {
			return fmt.Errorf("the model came to max_tokens, %d, before the first document: raise it", m.cfg.MaxTokens)
		}
		return nil
	})
	refused, ok := errors.AsType[*remote.RefusedError](err)
	answered, _ := errors.AsType[*remote.StatusError](err)
	_, failed := errors.AsType[*remote.FailedCallError](err)
	switch {
	case m.wrote.Load() && (failed || ok && slices.Contains(ofTheQuery, refused.Status) || answered != nil && slices.Contains(ofTheQuery, answered.Status)):
		return "", nil
	case ok:
		return "", fmt.Errorf("%w: %s refuses the request with status %d: %s", producers.ErrUnavailable, m.client, refused.Status, a.hideAnswers(refused.Reason))
	case err != nil:
		return "", err
	}
	found := cutDocuments(out.Choices[0].Message.Content, m.cfg.TopK)
	if found != "" {
		m.wrote.Store(true)
	}
	return found, nil
}

// ofTheQuery are the statuses with which an endpoint refuses the query, such as a query that is too long, and not the caller or the model.
var ofTheQuery = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// hideAnswers returns an endpoint's reason, unless it repeats an answer: errors are shown in logs and to programs that are agents.
func (a asked) hideAnswers(reason string) string {
	for _, answer := range a.Answers {
		if strings.Contains(strings.ToLower(reason), strings.ToLower(answer)) {
			return "its reason repeats the answer, and is left out here"
		}
	}
	return reason
}

// promptFor returns the prompt of the model.
func (m *model) promptFor(a asked) string {
	text, own := usefulPrompt, m.cfg.UsefulPrompt
	if a.noisy {
		text, own = noisyPrompt, m.cfg.NoisyPrompt
	}
	if own != "" {
		text = own
	}
	return strings.NewReplacer(
		"{documents}", strconv.Itoa(m.cfg.TopK), "{question}", a.Question, "{answers}", strings.Join(a.Answers, "; "), "{query}", a.query,
	).Replace(text)
}

var blankLines = regexp.MustCompile(`\n\s*\n+`)

// cutDocuments returns the documents in the model's text: without its thoughts and blank lines, and at most so many.
func cutDocuments(text string, most int) string {
	if _, after, thought := strings.Cut(text, "</think>"); thought {
		text = after
	} else if strings.HasPrefix(strings.TrimSpace(text), "<think>") {
		return "" // it did not come to an end of them
	}
	text = blankLines.ReplaceAllString(strings.TrimSpace(remote.Clean(text)), "\n")
	text, _, _ = strings.Cut(text, fmt.Sprintf("Doc %d", most+1))
	return strings.TrimSpace(text)
}
