package producers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// Episode is one rollout while it runs, and the only place that records it. Its methods are for the one
// goroutine that runs the agent.
//
// Invariant: every token the policy sampled is in a segment once, with mask 1, its log-probability and its
// version; every other token has mask 0, log-probability 0 and NoVersion.
type Episode struct {
	ticket *schemas.Ticket
	env    Environment

	segments []schemas.Segment
	turns    []schemas.Turn
	said     []string // by turn: what its tool said
	calls    int
	oldest   atomic.Int64 // version of the oldest sampled token; NoVersion before the first
	onOldest func()       // called when oldest has changed; may be nil
	started  time.Time

	// unserved: the policy was asked and gave nothing.
	unserved bool
	finished bool
	answer   string
	stop     schemas.StopReason
}

func newEpisode(ticket *schemas.Ticket, env Environment, onOldest func()) *Episode {
	e := &Episode{ticket: ticket, env: env, onOldest: onOldest, started: time.Now().UTC()}
	e.oldest.Store(int64(schemas.NoVersion))
	return e
}

// ID names the episode: the ticket's id.
func (e *Episode) ID() string { return e.ticket.ID }

// Prompt is what the agent is asked, without the answers.
func (e *Episode) Prompt() schemas.Prompt {
	p := e.ticket.Prompt
	p.Answers = nil
	return p
}

// Limits bound the episode.
func (e *Episode) Limits() schemas.Limits { return e.ticket.Limits }

// Tools are the specs of the tools that this episode may call; none when its limits allow no call.
func (e *Episode) Tools() []ToolSpec {
	if e.ticket.Limits.MaxTurns == 0 {
		return nil
	}
	specs := make([]ToolSpec, len(e.env.Tools))
	for i, tool := range e.env.Tools {
		specs[i] = tool.Spec()
	}
	return specs
}

// Context is the current segment's tokens; nil before Begin. The caller must not change it.
func (e *Episode) Context() []int32 {
	if len(e.segments) == 0 {
		return nil
	}
	return e.segments[len(e.segments)-1].Tokens
}

// Room is how many tokens the current segment can still take.
func (e *Episode) Room() int { return max(0, e.ticket.Limits.MaxTokens-len(e.Context())) }

// Begin starts a segment with these tokens as its context. The first call opens the episode; a later one
// is for agents that rewrite their context, when the old one is no longer a prefix of the new. At least one
// token; more than the token limit allows ends the episode.
func (e *Episode) Begin(tokens []int32) error {
	if len(tokens) == 0 {
		return errors.New("begin a segment: it has no token")
	}
	if len(tokens) > e.ticket.Limits.MaxTokens {
		return &StoppedError{schemas.StopTokens}
	}
	if len(e.segments) > 0 {
		e.env.metrics.begunAnew()
	}
	e.segments = append(e.segments, schemas.Segment{Temperature: e.ticket.Sampling.Temperature})
	e.given(tokens)
	return nil
}

// Observe puts tokens that the policy did not sample into the context. When they do not fit, none is put
// there and the episode ends: an agent that would rather shorten them asks Room first.
func (e *Episode) Observe(tokens []int32) error {
	if len(e.segments) == 0 {
		return errors.New("observe: no segment has begun")
	}
	if len(tokens) > e.Room() {
		return &StoppedError{schemas.StopTokens}
	}
	e.given(tokens)
	return nil
}

func (e *Episode) given(tokens []int32) {
	s := &e.segments[len(e.segments)-1]
	for _, token := range tokens {
		s.Tokens = append(s.Tokens, token)
		s.ActionMask = append(s.ActionMask, 0)
		s.Logprobs = append(s.Logprobs, 0)
		s.Versions = append(s.Versions, schemas.NoVersion)
	}
}

// GenerateOptions bound one call of the policy.
type GenerateOptions struct {
	// Stop are the tokens that end it; the one sampled is part of the result.
	Stop []int32
	// MaxTokens bounds it further than the ticket does; 0 does not.
	MaxTokens int
	// Last says that the agent will not call the policy again, so that the engine's cache can go.
	Last bool
}

// Generate lets the policy continue the context and records what it sampled as one turn. The result is the
// sampled tokens and why they ended. When the segment is full it returns [StoppedError] at once.
func (e *Episode) Generate(ctx context.Context, options GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	if len(e.segments) == 0 {
		return nil, "", errors.New("generate: no segment has begun")
	}
	room := e.Room()
	for _, bound := range []int{e.ticket.Sampling.MaxTokens, options.MaxTokens} {
		if bound > 0 {
			room = min(room, bound)
		}
	}
	if room <= 0 {
		return nil, "", &StoppedError{schemas.StopTokens}
	}
	segment := len(e.segments) - 1
	start := time.Now()
	g, err := e.env.Policy.Generate(ctx, &schemas.GenerateRequest{
		Run: e.ticket.Run, Episode: e.ticket.ID, Tokens: e.segments[segment].Tokens, MaxTokens: room,
		Temperature: e.ticket.Sampling.Temperature, Seed: segmentSeed(e.ticket.Seed, segment),
		StopTokens: options.Stop, Last: options.Last, MinVersion: e.ticket.MinVersion,
	})
	if err != nil {
		e.unserved = true
		return nil, "", fmt.Errorf("generate: %w", err)
	}
	if err := checkGeneration(g, room); err != nil {
		return nil, "", fmt.Errorf("generate: %w", err)
	}
	e.env.metrics.generated(time.Since(start))
	e.sampled(segment, g)
	return g.Tokens, g.Stop, nil
}

func (e *Episode) sampled(segment int, g *generate.Result) {
	s := &e.segments[segment]
	turn := schemas.Turn{Segment: segment, Start: len(s.Tokens), End: len(s.Tokens) + len(g.Tokens)}
	s.Tokens = append(s.Tokens, g.Tokens...)
	s.Logprobs = append(s.Logprobs, g.Logprobs...)
	s.Versions = append(s.Versions, g.Versions...)
	for range g.Tokens {
		s.ActionMask = append(s.ActionMask, 1)
	}
	e.turns = append(e.turns, turn)
	e.said = append(e.said, "")
	before := e.oldest.Load()
	oldest := before
	for _, v := range g.Versions {
		if oldest == int64(schemas.NoVersion) || int64(v) < oldest {
			oldest = int64(v)
		}
	}
	if oldest != before {
		e.oldest.Store(oldest)
		if e.onOldest != nil {
			e.onOldest()
		}
	}
}

// segmentSeed keeps the random numbers of one segment apart from those at the same positions of another.
func segmentSeed(seed uint64, segment int) uint64 { return seed + uint64(segment)*schemas.SeedStep }

// Call calls a tool for the last turn and records it there; of several calls in a turn the names are joined by commas, the arguments
// and what was said by line breaks, and process rewards are added up. A failure of the tool comes back as an
// observation that says so; a call beyond the turn limit ends the episode.
func (e *Episode) Call(ctx context.Context, name, arguments string) (Observation, error) {
	if len(e.turns) == 0 {
		return Observation{}, errors.New("call a tool: the policy has not sampled anything yet")
	}
	if e.calls >= e.ticket.Limits.MaxTurns {
		return Observation{}, &StoppedError{schemas.StopTurns}
	}
	turn := &e.turns[len(e.turns)-1]
	more := turn.Tool != ""
	if more {
		turn.Tool, turn.Arguments = turn.Tool+", "+name, turn.Arguments+"\n"+arguments
	} else {
		turn.Tool, turn.Arguments = name, arguments
	}
	start := time.Now()
	tool := e.tool(name)
	observation, err := e.call(ctx, tool, name, arguments)
	took := time.Since(start)
	turn.Duration += took
	e.calls++
	if cause := context.Cause(ctx); cause != nil {
		return Observation{}, cause
	}
	if errors.Is(err, ErrUnavailable) {
		return Observation{}, fmt.Errorf("call %s: %w", name, err)
	}
	if err != nil {
		turn.Error = err.Error()
		observation = Observation{Text: "error: " + err.Error()}
	}
	if observation.Reward != nil {
		turn.ProcessReward += *observation.Reward
	}
	if more {
		e.said[len(e.said)-1] += "\n" + observation.Text
	} else {
		e.said[len(e.said)-1] = observation.Text
	}
	e.env.metrics.called(name, tool != nil, took, err)
	return observation, nil
}

func (e *Episode) tool(name string) Tool {
	for _, tool := range e.env.Tools {
		if tool.Spec().Name == name {
			return tool
		}
	}
	return nil
}

func (e *Episode) call(ctx context.Context, tool Tool, name, arguments string) (Observation, error) {
	if tool == nil {
		return Observation{}, fmt.Errorf("there is no tool named %q", name)
	}
	return tool.Call(ctx, Call{Arguments: arguments, Run: e.ticket.Run, Episode: e.ticket.ID, Index: e.calls, Seed: e.ticket.Seed})
}

// Finish ends the episode: with the agent's answer, or with "" and why there is none. The first call counts.
func (e *Episode) Finish(answer string, stop schemas.StopReason) {
	if !e.finished {
		e.finished, e.answer, e.stop = true, answer, stop
	}
}

// Oldest is the policy version of the oldest sampled token, NoVersion before the first. It may be read by
// any goroutine.
func (e *Episode) Oldest() int64 { return e.oldest.Load() }
