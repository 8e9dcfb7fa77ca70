package producers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// Context is what the policy sees and continues: a row of segments, of which the last goes on. One goroutine uses it.
type Context struct {
	e      *Episode
	part   Part
	number int // counts the episode's contexts from 0
	agent  string
	calls  int // of tools in this context
	// segment is the current one's place among the episode's, begun how many there were before it in this context.
	segment, begun int
	turn           *turn // the last; nil before the first
	answer         string
}

// Agent names who acts in the context.
func (c *Context) Agent() string { return c.agent }

// Answer notes what the context's agent answered, for an episode of several agents: a Reward finds it in [TranscriptContext.Answer]. The
// episode goes on. The last call counts.
func (c *Context) Answer(text string) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.answer = text
}

// Tokens are those of the current segment. The caller must not change them.
func (c *Context) Tokens() []int32 {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.current().Tokens
}

// Room is how many tokens the current segment can still take.
func (c *Context) Room() int {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.room()
}

func (c *Context) current() *schemas.Segment { return &c.e.segments[c.segment] }

// room is Room. The lock is held.
func (c *Context) room() int {
	limits := c.e.ticket.Limits
	room := c.mostTokens() - len(c.current().Tokens)
	if limits.MaxTotalTokens > 0 {
		room = min(room, limits.MaxTotalTokens-c.e.total)
	}
	return max(0, room)
}

// mostTokens bounds the tokens of a segment.
func (c *Context) mostTokens() int {
	most := c.e.ticket.Limits.MaxTokens
	if own := c.part.MaxTokens; own > 0 {
		most = min(most, own)
	}
	return most
}

// Begin starts a segment with these tokens, at least one, when the context so far is no longer a prefix of what the policy is to see.
// More than the limits allow, of tokens or of segments, ends the episode.
func (c *Context) Begin(tokens []int32) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if err := c.begin(tokens); err != nil {
		return err
	}
	c.begun++
	c.e.env.metrics.begunAnew()
	return nil
}

// begin adds a segment. The lock is held.
func (c *Context) begin(tokens []int32) error {
	e, limits := c.e, c.e.ticket.Limits
	switch {
	case len(tokens) == 0:
		return errors.New("begin a segment: it has no token")
	case e.ended:
		return e.over()
	case len(tokens) > c.mostTokens(), limits.MaxTotalTokens > 0 && len(tokens) > limits.MaxTotalTokens-e.total:
		return &StoppedError{schemas.StopTokens}
	case limits.MaxSegments > 0 && len(e.segments) >= limits.MaxSegments:
		return &StoppedError{schemas.StopSegments}
	}
	c.segment = len(e.segments)
	e.segments = append(e.segments, schemas.Segment{Temperature: e.ticket.Sampling.Temperature, Agent: c.agent})
	c.given(tokens)
	kind := MoveContext
	if c.segment == 0 {
		kind = MovePrompt
	}
	c.watched(Move{Kind: kind}, tokens)
	return nil
}

// Observe puts tokens that the policy did not sample into the context. When they do not fit, none is put
// there and the episode ends: an agent that would rather shorten them asks Room first.
func (c *Context) Observe(tokens []int32) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if len(tokens) > c.room() {
		return &StoppedError{schemas.StopTokens}
	}
	c.given(tokens)
	if c.turn == nil || len(c.turn.said) == 0 { // what calls brought was told as it came
		c.watched(Move{Kind: MoveObservation}, tokens)
	}
	return nil
}

func (c *Context) given(tokens []int32) {
	s := c.current()
	c.e.total += len(tokens)
	for _, token := range tokens {
		s.Tokens = append(s.Tokens, token)
		s.ActionMask = append(s.ActionMask, 0)
		s.Logprobs = append(s.Logprobs, 0)
		s.Versions = append(s.Versions, schemas.NoVersion)
	}
}

// GenerateOptions bound one turn of the policy.
type GenerateOptions struct {
	// Stop are the tokens that end it; the one sampled is part of the result.
	Stop []int32
	// StopTexts are texts that end it, wherever in the turn they come to stand; each ends in a printable ASCII character or a line
	// break. A text that is one token of the vocabulary is that token. For others the policy pauses at every token with the text's
	// last character, and goes on in the same turn until the text is there; tokens after it, within the last token's
	// text, stay.
	StopTexts []string
	// MaxTokens bounds it further than the ticket does; 0 does not.
	MaxTokens int
	// Last says that the agent will not call the policy again in this context, so that the engine's cache can go.
	Last bool
}

// Generate lets the policy continue the context and records what it sampled as one turn. The result is the
// sampled tokens and why they ended. When the segment is full it returns [StoppedError] at once.
func (c *Context) Generate(ctx context.Context, options GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	stop, err := c.e.stops.of(options)
	if err != nil {
		return nil, "", fmt.Errorf("generate: %w", err)
	}
	var sampled []int32
	for {
		most := options.MaxTokens
		if most > 0 {
			most -= len(sampled)
		}
		g, err := c.generate(ctx, stop.tokens, most, options.Last && len(stop.texts) == 0, len(sampled) > 0)
		if err != nil {
			return nil, "", err
		}
		sampled = append(sampled, g.Tokens...)
		switch {
		case g.Stop != schemas.GenerateStopToken, len(stop.texts) == 0, slices.Contains(stop.hard, sampled[len(sampled)-1]), c.holds(sampled, stop.texts):
			c.watched(Move{Kind: MovePolicy}, sampled)
			return sampled, g.Stop, nil
		case options.MaxTokens > 0 && len(sampled) >= options.MaxTokens, c.turnRoom(len(sampled)) <= 0:
			c.watched(Move{Kind: MovePolicy}, sampled)
			return sampled, schemas.GenerateLength, nil
		}
	}
}

// holds says whether one of the texts stands in the sampled tokens.
func (c *Context) holds(sampled []int32, texts []string) bool {
	text := c.e.env.Tokenizer.Decode(sampled)
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
}

// turnRoom is how many tokens a turn that has so many can still take.
func (c *Context) turnRoom(has int) int {
	room := c.Room()
	if most := c.e.ticket.Sampling.MaxTokens; most > 0 {
		room = min(room, most-has)
	}
	return room
}

// generate is one call of the policy. With more it goes on with the turn that is there.
func (c *Context) generate(ctx context.Context, stop []int32, most int, last, more bool) (*generate.Result, error) {
	e := c.e
	e.mu.Lock()
	if err := e.over(); err != nil {
		e.mu.Unlock()
		return nil, err
	}
	room, had := c.room(), 0
	if more {
		had = c.turn.End - c.turn.Start
	}
	if bound := e.ticket.Sampling.MaxTokens; bound > 0 {
		room = min(room, bound-had)
	}
	if most > 0 {
		room = min(room, most)
	}
	if room <= 0 {
		e.mu.Unlock()
		return nil, &StoppedError{schemas.StopTokens}
	}
	e.total += room // so that contexts that generate at the same time share what is left
	request := &schemas.GenerateRequest{
		Run: e.ticket.Run, Episode: e.ticket.ID, Tokens: c.current().Tokens, MaxTokens: room,
		Temperature: e.ticket.Sampling.Temperature, Seed: c.seed(),
		StopTokens: stop, Last: last, MinVersion: e.ticket.MinVersion,
	}
	if c.number > 0 {
		request.Context = strconv.Itoa(c.number)
	}
	g, err := e.fork.take(request, c.agent, more), error(nil)
	e.mu.Unlock()

	start := time.Now()
	given := g != nil
	if !given {
		g, err = e.env.Policy.Generate(ctx, request)
	}

	e.mu.Lock()
	e.total -= room
	if err != nil {
		e.unserved = true
		e.mu.Unlock()
		return nil, fmt.Errorf("generate: %w", err)
	}
	if err := checkGeneration(g, room); err != nil {
		e.mu.Unlock()
		return nil, fmt.Errorf("generate: %w", err)
	}
	c.sampled(g, more, start)
	e.mu.Unlock()
	if !given {
		e.env.metrics.generated(time.Since(start))
	}
	e.sawVersions(g.Versions)
	return g, nil
}

// sampled records what the policy sampled. The lock is held.
func (c *Context) sampled(g *generate.Result, more bool, asked time.Time) {
	s := c.current()
	if !more {
		c.turn = &turn{Turn: schemas.Turn{Segment: c.segment, Start: len(s.Tokens)}, context: c, began: asked}
		c.e.turns = append(c.e.turns, c.turn)
	}
	s.Tokens = append(s.Tokens, g.Tokens...)
	s.Logprobs = append(s.Logprobs, g.Logprobs...)
	s.Versions = append(s.Versions, g.Versions...)
	for range g.Tokens {
		s.ActionMask = append(s.ActionMask, 1)
	}
	c.turn.End, c.turn.sampledAt = len(s.Tokens), time.Now()
	c.e.total += len(g.Tokens)
}

// seed keeps the random numbers of one segment apart from those at the same positions of another, in this context and others.
func (c *Context) seed() uint64 {
	seed := c.e.ticket.Seed
	if c.number > 0 {
		seed = schemas.MixSeed(seed + uint64(c.number))
	}
	return seed + uint64(c.begun)*schemas.SeedStep
}
