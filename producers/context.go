package producers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Context is the text that the policy sees and continues: a row of segments, of which the last goes on. It is used by a single goroutine.
type Context struct {
	e      *Episode
	part   Part
	number int // counts the episode's contexts from 0
	agent  string
	calls  int // of tools in this context
	// segment is the place of the current segment among the episode's, begun how many segments came before it in this context.
	segment, begun int
	turn           *turn // the last; nil before the first
	// draft is the turn that goes on, or a turn that was cut off and may go on; nil where there is none.
	draft  *draft
	answer string
}

// Agent is the name of the agent that acts in the context.
func (c *Context) Agent() string { return c.agent }

// Answer records the answer of the context's agent, for an episode of several agents: a Reward finds it in [TranscriptContext.Answer]. The
// episode goes on. The last call counts.
func (c *Context) Answer(text string) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.answer = text
}

// Tokens are the tokens of the current segment. The caller must not change them.
func (c *Context) Tokens() []int32 {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.currentSegment().Tokens
}

// Room is how many tokens the current segment can still take.
func (c *Context) Room() int {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.roomLeft()
}

// currentSegment returns the segment that is written now.
func (c *Context) currentSegment() *schemas.Segment { return &c.e.segments[c.segment] }

// roomLeft is Room. The lock is held.
func (c *Context) roomLeft() int {
	limits := c.e.ticket.Limits
	room := c.mostTokens() - len(c.currentSegment().Tokens)
	if limits.MaxTotalTokens > 0 {
		room = min(room, limits.MaxTotalTokens-c.e.total)
	}
	return max(0, room)
}

// lastSegment reports whether the episode may begin no other segment. The lock is held.
func (e *Episode) lastSegment() bool {
	most := cmp.Or(e.ticket.Limits.MaxSegments, e.env.MaxSegments)
	return most > 0 && len(e.segments) >= most
}

// RoomAnew is how many tokens a further segment could take, its first tokens included; 0 where no segment may begin.
func (c *Context) RoomAnew() int {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	limits, room := c.e.ticket.Limits, c.mostTokens()
	if c.e.lastSegment() {
		return 0
	}
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

// Begin starts a segment with these tokens, at least one, when the context so far is no longer a prefix of the new context.
// More than the limits allow, of tokens or of segments, ends the episode.
func (c *Context) Begin(tokens []int32) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if err := c.beginSegment(tokens); err != nil {
		return err
	}
	c.begun++
	c.e.env.metrics.begunAnew()
	return nil
}

// beginSegment adds a segment that begins with tokens. The lock is held.
func (c *Context) beginSegment(tokens []int32) error {
	e, limits := c.e, c.e.ticket.Limits
	switch {
	case len(tokens) == 0:
		return errors.New("begin a segment: it has no token")
	case e.ended:
		return e.checkRunning()
	case len(tokens) > c.mostTokens(), limits.MaxTotalTokens > 0 && len(tokens) > limits.MaxTotalTokens-e.total:
		return &StoppedError{schemas.StopTokens}
	case e.lastSegment():
		return &StoppedError{schemas.StopSegments}
	}
	c.segment = len(e.segments)
	e.segments = append(e.segments, schemas.Segment{Temperature: e.ticket.Sampling.Temperature, Agent: c.agent})
	c.addGivenTokens(tokens)
	kind := MoveContext
	if c.segment == 0 {
		kind = MovePrompt
	}
	c.notifyMove(Move{Kind: kind}, tokens)
	return nil
}

// Observe puts tokens that the policy did not sample into the context. When they do not fit, none is put
// there and the episode ends: an agent that would rather shorten them asks Room first.
func (c *Context) Observe(tokens []int32) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if len(tokens) > c.roomLeft() {
		return &StoppedError{schemas.StopTokens}
	}
	c.addGivenTokens(tokens)
	if c.turn == nil || len(c.turn.said) == 0 { // the observations of calls were shown as they came
		c.notifyMove(Move{Kind: MoveObservation}, tokens)
	}
	return nil
}

// addGivenTokens adds tokens that the policy did not sample.
func (c *Context) addGivenTokens(tokens []int32) {
	c.draft = nil // a turn that was cut off does not go on behind something else
	s := c.currentSegment()
	c.e.total += len(tokens)
	for _, token := range tokens {
		s.Tokens = append(s.Tokens, token)
		s.ActionMask = append(s.ActionMask, 0)
		s.Logprobs = append(s.Logprobs, 0)
		s.Versions = append(s.Versions, schemas.NoVersion)
	}
}

// GenerateOptions bound a turn of the policy.
type GenerateOptions struct {
	// Stop are the tokens that end it; the sampled stop token is part of the result.
	Stop []int32
	// StopTexts are texts that end it, wherever in the turn they come to stand; each ends in a printable ASCII character or a line break. A
	// text that is a single token of the vocabulary is that token. For others the policy pauses at every token with the text's last
	// character, and goes on in the same turn until the text is there; tokens after it, within the last token's text, stay.
	StopTexts []string
	// MaxTokens bounds it further than the ticket does; 0 does not.
	MaxTokens int
	// Last says that the agent will not call the policy again in this context, so that the engine's cache can go.
	Last bool
}

// Generate lets the policy continue the context and records the sampled tokens as a turn. The result is the sampled tokens and why they
// ended. When the segment is full, or as long as the engine takes, it returns [StoppedError] at once. An error leaves the context as it
// was: nothing of a turn that the agent was not given is in it, but for the turn in which the episode's time limit passed, its last, and
// the first turn of an episode that ends without a whole turn. The next call with the same options goes on with the tokens of the turn that
// were sampled before the error.
func (c *Context) Generate(ctx context.Context, options GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	stop, err := c.e.stops.stopsFor(options)
	if err != nil {
		return nil, "", fmt.Errorf("generate: %w", err)
	}
	defer c.e.activity.beginRequest()()
	defer c.e.beginWork()()
	c.beginDraft(options)
	why, err := c.finishDraft(ctx, stop, options)
	if err != nil {
		c.suspendDraft(ctx)
		return nil, "", err
	}
	return c.recordDraft(), why, nil
}

// finishDraft has the policy go on until the turn is whole, and says why it is.
func (c *Context) finishDraft(ctx context.Context, stop stops, options GenerateOptions) (schemas.GenerateStop, error) {
	if why := c.wholeDraft(stop, options); why != "" {
		return why, nil
	}
	for {
		most := options.MaxTokens
		if most > 0 {
			most -= len(c.draft.tokens)
		}
		why, err := c.samplePiece(ctx, stop.tokens, most, options.Last && len(stop.texts) == 0)
		sampled := c.draft.tokens
		if full, ok := errors.AsType[*StoppedError](err); ok && full.Reason == schemas.StopTokens && len(sampled) > 0 {
			return schemas.GenerateLength, nil // another context took the room between two pieces
		}
		switch {
		case err != nil:
			return "", err
		case why != schemas.GenerateStopToken, c.endsTurn(sampled, stop):
			return why, nil
		case options.MaxTokens > 0 && len(sampled) >= options.MaxTokens, c.turnRoom() <= 0:
			return schemas.GenerateLength, nil
		}
	}
}

// endsTurn reports whether a turn ends with these tokens, of which the last is a stop token.
func (c *Context) endsTurn(sampled []int32, stop stops) bool {
	return len(stop.texts) == 0 || slices.Contains(stop.hard, sampled[len(sampled)-1]) || c.holdsStopText(sampled, stop.texts)
}

// wholeDraft is why a draft that was cut off goes on no further: all of its tokens had come, and not the word that they were all. "" is
// that it goes on.
func (c *Context) wholeDraft(stop stops, options GenerateOptions) schemas.GenerateStop {
	c.e.mu.Lock()
	over := c.e.checkRunning() != nil
	c.e.mu.Unlock()
	sampled := c.draft.tokens
	switch {
	case over, len(sampled) == 0:
	case slices.Contains(stop.tokens, sampled[len(sampled)-1]) && c.endsTurn(sampled, stop):
		return schemas.GenerateStopToken
	case options.MaxTokens > 0 && len(sampled) >= options.MaxTokens:
		return schemas.GenerateLength
	}
	return ""
}

// holdsStopText reports whether a stop text stands in the sampled tokens.
func (c *Context) holdsStopText(sampled []int32, texts []string) bool {
	text := c.e.env.Tokenizer.Decode(sampled)
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
}

// turnRoom is how many tokens the turn can still take.
func (c *Context) turnRoom() int {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.draftRoom()
}

// draftRoom is turnRoom. The lock is held. The draft's tokens are among the episode's, and not among the segment's.
func (c *Context) draftRoom() int {
	limits, has := c.e.ticket.Limits, len(c.draft.tokens)
	room := c.mostTokens() - len(c.currentSegment().Tokens) - has
	if limits.MaxTotalTokens > 0 {
		room = min(room, limits.MaxTotalTokens-c.e.total)
	}
	if most := c.e.ticket.Sampling.MaxTokens; most > 0 {
		room = min(room, most-has)
	}
	return room
}

// samplePiece calls the policy once: it adds a piece to the draft, and returns why the piece ended.
func (c *Context) samplePiece(ctx context.Context, stop []int32, most int, last bool) (schemas.GenerateStop, error) {
	e, d := c.e, c.draft
	more := len(d.tokens) > 0
	e.mu.Lock()
	if err := e.checkRunning(); err != nil {
		e.mu.Unlock()
		return "", err
	}
	room := c.draftRoom()
	if most > 0 {
		room = min(room, most)
	}
	if room <= 0 {
		e.mu.Unlock()
		return "", &StoppedError{schemas.StopTokens}
	}
	e.total += room // so that contexts that generate at the same time share the remaining tokens
	request := c.pieceRequest(room, stop, last)
	g, err := e.fork.takeReplayedTurn(request, c.agent, more), error(nil)
	e.mu.Unlock()

	start := time.Now()
	given := g != nil
	if !given {
		g, given, err = e.askPolicy(ctx, request, c.agent)
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.total -= room
	if err != nil {
		if ctx.Err() != nil && checkGeneration(g, room) == nil { // the tokens until the call was cut off
			d.addPiece(g)
			e.total += len(g.Tokens)
		}
		e.unserved = e.unserved || len(d.tokens) == 0
		return "", blamePart(PartEngine, "", fmt.Errorf("generate: %w", err))
	}
	if isFull(g) {
		return "", &StoppedError{schemas.StopTokens}
	}
	if err := checkGeneration(g, room); err != nil {
		return "", blamePart(PartEngine, "", fmt.Errorf("generate: %w", err))
	}
	d.addPiece(g)
	e.total += len(g.Tokens)
	if !given {
		e.env.metrics.observeGeneration(time.Since(start))
	}
	return g.Stop, nil
}

// pieceRequest asks the policy for at most room tokens after the segment and its draft; the episode's lock is held.
func (c *Context) pieceRequest(room int, stop []int32, last bool) *schemas.GenerateRequest {
	ticket := c.e.ticket
	request := &schemas.GenerateRequest{
		Run: ticket.Run, Episode: ticket.ID, Tokens: c.currentSegment().Tokens, MaxTokens: room,
		Temperature: ticket.Sampling.Temperature, Seed: c.segmentSeed(),
		StopTokens: stop, Last: last, MinVersion: ticket.MinVersion,
	}
	if len(c.draft.tokens) > 0 {
		request.Tokens = slices.Concat(request.Tokens, c.draft.tokens)
	}
	if c.number > 0 {
		request.Context = strconv.Itoa(c.number)
	}
	return request
}

// segmentSeed keeps the random numbers of a segment apart from the numbers at the same positions of other segments, in this context and
// others.
func (c *Context) segmentSeed() uint64 {
	seed := c.e.ticket.Seed
	if c.number > 0 {
		seed = schemas.MixSeed(seed + uint64(c.number))
	}
	return seed + uint64(c.begun)*schemas.SeedStep
}
