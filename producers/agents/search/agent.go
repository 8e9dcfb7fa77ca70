package search

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// What an agent does about an action that is neither a search nor an answer.
const (
	InvalidEnds     = "end"      // the episode ends, stop reason "format"
	InvalidIsToldOf = "feedback" // the policy is shown Config.Feedback and goes on
)

// Config says how the agent speaks. Every tag must be one token of the vocabulary.
type Config struct {
	// Begin is the token that opens the context; "" is none.
	Begin string `koanf:"begin"`
	// Tool is the name of the tool that a search calls.
	Tool string `koanf:"tool"`
	// Search, Info and Answer are the names in the tags: "search" is for <search> and </search>.
	Search string `koanf:"search"`
	Info   string `koanf:"info"`
	Answer string `koanf:"answer"`
	// Invalid is what an invalid action leads to: "end" or "feedback".
	Invalid string `koanf:"invalid"`
	// Feedback is what the policy is shown after an invalid action, between info tags.
	Feedback string `koanf:"feedback"`
	// MaxInvalid is the number of invalid actions that ends the episode, > 0; it is read only with "feedback".
	MaxInvalid int `koanf:"max_invalid"`
}

// DefaultConfig ends an episode at its first invalid action.
func DefaultConfig() Config {
	return Config{
		Begin: "<bos>", Tool: "search", Search: "search", Info: "info", Answer: "answer",
		Invalid: InvalidEnds, Feedback: "nothing found.", MaxInvalid: 3,
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Given("tool", c.Tool, "name the tool that searches"),
		check.Given("search", c.Search, "name the tag"),
		check.Given("info", c.Info, "name the tag"),
		check.Given("answer", c.Answer, "name the tag"),
		check.OneOf("invalid", c.Invalid, InvalidEnds, InvalidIsToldOf),
		check.Positive("max_invalid", c.MaxInvalid),
	)
}

// Agent is a producers.Agent; it keeps nothing between episodes.
type Agent struct {
	cfg   Config
	tok   producers.Tokenizer
	tags  tags
	begin []int32
}

// New makes the agent for a tokenizer. A tag that is not one token of its vocabulary is refused by name.
func New(cfg Config, tok producers.Tokenizer) (*Agent, error) {
	faults := []error{cfg.Validate()}
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			faults = append(faults, fmt.Errorf("the vocabulary has no token %q", token))
		}
		return id
	}
	pair := func(name string) pair { return pair{id("<" + name + ">"), id("</" + name + ">")} }
	a := &Agent{cfg: cfg, tok: tok, tags: tags{search: pair(cfg.Search), info: pair(cfg.Info), answer: pair(cfg.Answer)}}
	if cfg.Begin != "" {
		a.begin = []int32{id(cfg.Begin)}
	}
	if err := errors.Join(faults...); err != nil {
		if !tasks.OfWords(tok) {
			err = fmt.Errorf("%w; an agent of type chat speaks a published model's own chat template and needs no tags", err)
		}
		return nil, fmt.Errorf("search agent: %w", err)
	}
	return a, nil
}

// Opening are the tokens that each episode of a prompt begins with.
func (a *Agent) Opening(p schemas.Prompt) []int32 {
	return slices.Concat(a.begin, a.tok.Encode(p.Text))
}

// Format says how contexts are written: after the opening token, until the end of a search or of an answer.
func (a *Agent) Format() producers.Format {
	return producers.Format{Begin: a.cfg.Begin, Stop: []string{"</" + a.cfg.Search + ">", "</" + a.cfg.Answer + ">"}}
}

// Run drives one episode. Without a tool to search with, the answer tag is opened for the policy, which then
// has nothing but what it knows.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	opening := a.Opening(e.Prompt())
	closedBook := !slices.ContainsFunc(e.Tools(), func(s producers.ToolSpec) bool { return s.Name == a.cfg.Tool })
	if closedBook {
		opening = append(opening, a.tags.answer.open)
	}
	if err := e.Begin(opening); err != nil {
		return err
	}
	stop := []int32{a.tags.search.close, a.tags.answer.close}
	for invalid := 0; ; {
		sampled, _, err := e.Generate(ctx, producers.GenerateOptions{Stop: stop, Last: closedBook})
		if err != nil {
			return err
		}
		kind, body := a.tags.parse(sampled, closedBook)
		switch kind {
		case answers:
			e.Finish(a.tok.Decode(body), schemas.StopAnswer)
			return nil
		case searches:
			done, err := a.search(ctx, e, body)
			if done || err != nil {
				return err
			}
		default:
			if invalid++; a.cfg.Invalid == InvalidEnds || closedBook || invalid >= a.cfg.MaxInvalid {
				e.Finish("", whyInvalid(e))
				return nil
			}
			if err := a.tell(e, a.cfg.Feedback); err != nil {
				return err
			}
		}
	}
}

// whyInvalid blames the token limit, not the format, for an action that the limit cut short.
func whyInvalid(e *producers.Episode) schemas.StopReason {
	if e.Room() == 0 {
		return schemas.StopTokens
	}
	return schemas.StopFormat
}

// search calls the tool and shows what it said; done says that the tool ended the episode.
func (a *Agent) search(ctx context.Context, e *producers.Episode, query []int32) (done bool, err error) {
	observation, err := e.Call(ctx, a.cfg.Tool, a.tok.Decode(query))
	if err != nil {
		return false, err
	}
	if observation.Done {
		e.Finish("", schemas.StopAnswer)
		return true, nil
	}
	return false, a.tell(e, observation.Text)
}

// encode are the ids of a tool's text: of a vocabulary that writes every text, without control tokens, whatever the text spells.
func (a *Agent) encode(text string) []int32 {
	if t, ok := a.tok.(interface{ EncodeText(text string) []int32 }); ok && !tasks.OfWords(a.tok) {
		return t.EncodeText(text)
	}
	return a.tok.Encode(text)
}

// tell puts a text into the context as information. A tag that stands in the text itself is left out: what a tool says must
// not look like the end of the information, or like an answer.
func (a *Agent) tell(e *producers.Episode, text string) error {
	tokens := []int32{a.tags.info.open}
	for _, token := range a.encode(text) {
		if !a.tags.isTag(token) && !slices.Contains(a.begin, token) {
			tokens = append(tokens, token)
		}
	}
	return e.Observe(append(tokens, a.tags.info.close))
}
