package search

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// An agent's reactions to an action that is neither a search nor an answer.
const (
	InvalidEnds     = "end"      // the episode ends, stop reason "format"
	InvalidIsToldOf = "feedback" // the policy is shown Config.Feedback and goes on
)

// Config says how the agent speaks. Every tag must be a token of the vocabulary.
type Config struct {
	// Begin is the token that opens the context; "" is none.
	Begin string `koanf:"begin"`
	// Tool is the name of the tool that a search calls.
	Tool string `koanf:"tool"`
	// Further are further tools that find something for a query, each called between tags of its own name: expert between <expert> and
	// </expert>. Defaults to none.
	Further []string `koanf:"further"`
	// Search, Info and Answer are the names in the tags: "search" is for <search> and </search>.
	Search string `koanf:"search"`
	Info   string `koanf:"info"`
	Answer string `koanf:"answer"`
	// Invalid is the reaction to an invalid action: "end" or "feedback".
	Invalid string `koanf:"invalid"`
	// Feedback is the text that the policy is shown after an invalid action, between info tags.
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
		c.checkFurther(),
		check.OneOf("invalid", c.Invalid, InvalidEnds, InvalidIsToldOf),
		check.Positive("max_invalid", c.MaxInvalid),
	)
}

// checkFurther refuses further tools whose tags are taken.
func (c Config) checkFurther() error {
	var faults []error
	taken := []string{c.Tool, c.Search, c.Info, c.Answer}
	for i, name := range c.Further {
		key := fmt.Sprintf("further[%d]", i)
		faults = append(faults, check.Given(key, name, "name a tool"),
			check.That(!slices.Contains(taken, name), key, "%q: another tool or tag has this name", name))
		taken = append(taken, name)
	}
	return errors.Join(faults...)
}

// TagTokens are the tags of the further tools, for a task that makes its vocabulary.
func (c *Config) TagTokens() []string {
	var out []string
	for _, name := range c.Further {
		out = append(out, "<"+name+">", "</"+name+">")
	}
	return out
}

// toolNames are the names of the tools that search, in the order of their tags.
func (c Config) toolNames() []string { return append([]string{c.Tool}, c.Further...) }

// Agent is a producers.Agent; it keeps nothing between episodes.
type Agent struct {
	cfg   Config
	tok   producers.Tokenizer
	tags  tags
	begin []int32
}

// New makes the agent for a tokenizer. A tag that is not a token of its vocabulary is refused by name.
func New(cfg Config, tok producers.Tokenizer) (*Agent, error) {
	faults := []error{cfg.Validate()}
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			faults = append(faults, fmt.Errorf("the vocabulary has no token %q", token))
		}
		return id
	}
	both := func(name string) pair { return pair{id("<" + name + ">"), id("</" + name + ">")} }
	a := &Agent{cfg: cfg, tok: tok, tags: tags{tools: []pair{both(cfg.Search)}, info: both(cfg.Info), answer: both(cfg.Answer)}}
	for _, name := range cfg.Further {
		a.tags.tools = append(a.tags.tools, both(name))
	}
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
	return a.Begin(p.Text, false)
}

// Format says how contexts are written: after the opening token, until the end of a search or of an answer.
func (a *Agent) Format() producers.Format {
	return producers.Format{Begin: a.cfg.Begin, Stop: a.stopTexts()}
}

// stopTexts are the tags that end a turn.
func (a *Agent) stopTexts() []string {
	out := []string{"</" + a.cfg.Search + ">", "</" + a.cfg.Answer + ">"}
	for _, name := range a.cfg.Further {
		out = append(out, "</"+name+">")
	}
	return out
}

// Run drives an episode. Without a tool to search with, the answer tag is opened for the policy, which then answers from memory.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	closedBook := !a.Searches(e)
	c, err := e.Open("", a.Begin(e.Prompt().Text, closedBook))
	if err != nil {
		return err
	}
	answer, stop, err := a.Drive(ctx, c, Course{ClosedBook: closedBook})
	if err != nil {
		return err
	}
	e.Finish(answer, stop)
	return nil
}

// Searches reports whether an episode has a tool that searches.
func (a *Agent) Searches(e *producers.Episode) bool {
	names := a.cfg.toolNames()
	return slices.ContainsFunc(e.Tools(), func(s producers.ToolSpec) bool { return slices.Contains(names, s.Name) })
}

// Begin are the tokens that a context about a text begins with; of a closed book the answer tag stands open after them.
func (a *Agent) Begin(text string, closedBook bool) []int32 {
	begin := slices.Concat(a.begin, a.tok.Encode(text))
	if closedBook {
		begin = append(begin, a.tags.answer.open)
	}
	return begin
}

// BeginPlain is Begin of a text that the policy wrote: control tokens and tags that stand in it are left out. Where
// contexts begin with no token, nothing may be left.
func (a *Agent) BeginPlain(text string, closedBook bool) []int32 {
	begin := slices.Concat(a.begin, a.encodePlain(text))
	if closedBook {
		begin = append(begin, a.tags.answer.open)
	}
	return begin
}

// encodePlain encodes a text without the tags and control tokens that it spells.
func (a *Agent) encodePlain(text string) []int32 {
	return slices.DeleteFunc(a.encodeResult(text), func(id int32) bool { return a.tags.isTag(id) || slices.Contains(a.begin, id) })
}

// Course says how a context is driven.
type Course struct {
	// ClosedBook is without searches: the answer tag stands open in the context.
	ClosedBook bool
	// Searches bounds the searches of this context; 0 leaves that to the episode's limit, and -1 allows none.
	Searches int
	// Found is given the words of each search; nil for nobody.
	Found func(text string)
}

// Drive drives a context to its answer. Where there is none the answer is "" and stop says why; a tool that ends the episode is such a
// stop. The context began with the tokens of Begin.
func (a *Agent) Drive(ctx context.Context, c *producers.Context, course Course) (answer string, stop schemas.StopReason, err error) {
	names, ends := a.cfg.toolNames(), []int32{a.tags.answer.close}
	for _, tag := range a.tags.tools {
		ends = append(ends, tag.close)
	}
	for invalid, searched := 0, 0; ; {
		sampled, _, err := c.Generate(ctx, producers.GenerateOptions{Stop: ends, Last: course.ClosedBook})
		if err != nil {
			return "", "", err
		}
		kind, tool, body := a.tags.parseTurn(sampled, course.ClosedBook)
		switch kind {
		case answers:
			return a.tok.Decode(body), schemas.StopAnswer, nil
		case searches:
			if searched++; course.Searches != 0 && searched > course.Searches {
				return "", schemas.StopTurns, nil
			}
			said, err := c.Call(ctx, names[tool], a.tok.Decode(body))
			if err != nil || said.Done {
				return "", schemas.StopTool, err
			}
			if course.Found != nil {
				course.Found(said.Text)
			}
			if err := a.showInformation(c, said.Text); err != nil {
				return "", "", err
			}
		default:
			if invalid++; a.cfg.Invalid == InvalidEnds || course.ClosedBook || invalid >= a.cfg.MaxInvalid {
				return "", whyInvalid(c), nil
			}
			if err := a.showInformation(c, a.cfg.Feedback); err != nil {
				return "", "", err
			}
		}
	}
}

// whyInvalid blames the token limit, not the format, for an action that the limit cut short.
func whyInvalid(c *producers.Context) schemas.StopReason {
	if c.Room() == 0 {
		return schemas.StopTokens
	}
	return schemas.StopFormat
}

// encodeResult encodes a tool's text: of a vocabulary that writes every text, without control tokens, whatever the text spells.
func (a *Agent) encodeResult(text string) []int32 {
	if t, ok := a.tok.(tokenizer.PlainEncoder); ok && !tasks.OfWords(a.tok) {
		return t.EncodeText(text)
	}
	return a.tok.Encode(text)
}

// showInformation puts a text into the context as information. A tag that stands in the text itself is left out: the output of a tool must
// not look like the end of the information, or like a call.
func (a *Agent) showInformation(c *producers.Context, text string) error {
	return c.Observe(a.Told(text))
}

// Told are the tokens that tell the policy a text.
func (a *Agent) Told(text string) []int32 {
	return slices.Concat([]int32{a.tags.info.open}, a.encodePlain(text), []int32{a.tags.info.close})
}

// Searched and Answered are the tokens of a turn that searches for a text, and of a turn that answers with it.
func (a *Agent) Searched(text string) []int32 { return a.encodeBetween(a.tags.tools[0], text) }

// Answered is as Searched.
func (a *Agent) Answered(text string) []int32 { return a.encodeBetween(a.tags.answer, text) }

// encodeBetween encodes a text between two tags.
func (a *Agent) encodeBetween(tag pair, text string) []int32 {
	return slices.Concat([]int32{tag.open}, a.encodePlain(text), []int32{tag.close})
}
