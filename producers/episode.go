package producers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Episode is a rollout while it runs, and the only place that records it. Most agents have a single context, to which the methods of the
// Episode belong; [Episode.Open] opens further ones. Contexts may be used at the same time, each by a single goroutine.
//
// Invariant: every token of a turn of the policy is in a segment once, with mask 1, its log-probability and its
// version; every other token has mask 0, log-probability 0 and NoVersion.
type Episode struct {
	ticket   *schemas.Ticket
	env      Environment
	started  time.Time
	oldest   atomic.Int64 // version of the oldest sampled token; NoVersion before the first
	onOldest func()       // called when oldest has changed; may be nil
	first    *Context     // nil before the first segment
	sessions []SessionTool
	fork     *fork // nil where the ticket asks for none
	journal  *journal
	// stops are the stop tokens of stop texts.
	stops *stopTokens
	// activity is what its agent does.
	activity activity

	mu       sync.Mutex // guards the fields below
	contexts []*Context
	segments []schemas.Segment
	turns    []*turn
	total    int                // tokens of all segments, with the tokens that calls of the policy may still add
	calls    int                // of tools
	reported map[string]float64 // the tools' measures, added up
	// unserved: the policy was asked and gave nothing.
	unserved bool
	finished bool
	// ended: a tool ended the episode, and nothing comes after it.
	ended  bool
	answer string
	stop   schemas.StopReason
	posted *Score
}

// turn is a move of the agent, with the tools' observations.
type turn struct {
	schemas.Turn
	context *Context
	said    []Observation // an entry for each of its calls
	called  []time.Time   // when each of them was made
	// began is when its first token was asked for, sampledAt when its last was there.
	began, sampledAt time.Time
}

func newEpisode(ticket *schemas.Ticket, env Environment, onOldest func()) *Episode {
	e := &Episode{ticket: ticket, env: env, onOldest: onOldest, started: time.Now().UTC(), stops: env.stops, fork: newFork(ticket.Fork)}
	if e.stops == nil {
		e.stops = newStopTokens(env.Tokenizer)
	}
	e.oldest.Store(int64(schemas.NoVersion))
	return e
}

// ID names the episode: the ticket's id.
func (e *Episode) ID() string { return e.ticket.ID }

// Prompt is the agent's question, without the answers and without the data for tools and rewards alone.
func (e *Episode) Prompt() schemas.Prompt {
	p := e.ticket.Prompt
	p.Answers, p.World, p.Hidden = nil, nil, nil
	return p
}

// World is the data that the task gives the tools for this prompt, as JSON; nil is nothing. It is for agents that bring tools of their own,
// and must not be shown to the policy. It never holds the answers.
func (e *Episode) World() json.RawMessage { return e.ticket.Prompt.World }

// Task is the name of the ticket's task.
func (e *Episode) Task() string { return e.ticket.Task }

// Seed fixes the agent's random numbers. In a fork it is the parent's.
func (e *Episode) Seed() uint64 { return e.drawingSeed() }

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

// Open opens a context, which begins with these tokens, for an agent by this name: it is how rewards and trainers tell agents
// apart, and "" where an agent acts alone. The first context that is begun or opened is the episode's own.
func (e *Episode) Open(agent string, tokens []int32) (*Context, error) {
	return e.OpenPart(Part{Agent: agent}, tokens)
}

var errNotBegun = errors.New("no segment has begun")

// Context is the tokens of the first context as it stands; nil before Begin. The caller must not change it.
func (e *Episode) Context() []int32 {
	if e.first == nil {
		return nil
	}
	return e.first.Tokens()
}

// Room is how many tokens the first context can still take.
func (e *Episode) Room() int {
	if e.first == nil {
		return e.ticket.Limits.MaxTokens
	}
	return e.first.Room()
}

// RoomAnew is how many tokens a further segment of the first context could take, its first tokens included; 0 where no segment may begin.
func (e *Episode) RoomAnew() int {
	if e.first == nil {
		return e.ticket.Limits.MaxTokens
	}
	return e.first.RoomAnew()
}

// Begin starts a segment with these tokens as its context. The first call opens the episode; a later segment is for agents that rewrite
// their context, when the old context is no longer a prefix of the new. At least one token; more than the limits allow, of tokens or of
// segments, ends the episode.
func (e *Episode) Begin(tokens []int32) error {
	if e.first == nil {
		_, err := e.Open("", tokens)
		return err
	}
	return e.first.Begin(tokens)
}

// Observe puts tokens that the policy did not sample into the first context: see [Context.Observe].
func (e *Episode) Observe(tokens []int32) error {
	if e.first == nil {
		return fmt.Errorf("observe: %w", errNotBegun)
	}
	return e.first.Observe(tokens)
}

// Generate lets the policy continue the first context: see [Context.Generate].
func (e *Episode) Generate(ctx context.Context, options GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	if e.first == nil {
		return nil, "", fmt.Errorf("generate: %w", errNotBegun)
	}
	return e.first.Generate(ctx, options)
}

// Call calls a tool for the first context's last turn: see [Context.Calls].
func (e *Episode) Call(ctx context.Context, name, arguments string) (Observation, error) {
	if e.first == nil {
		return Observation{}, fmt.Errorf("call a tool: %w", errNotBegun)
	}
	return e.first.Call(ctx, name, arguments)
}

// Calls calls tools for the first context's last turn: see [Context.Calls].
func (e *Episode) Calls(ctx context.Context, calls []ToolCall) ([]Observation, error) {
	if e.first == nil {
		return nil, fmt.Errorf("call tools: %w", errNotBegun)
	}
	return e.first.Calls(ctx, calls)
}

// Finish ends the episode: with the agent's answer, or with "" and why there is none. The first call counts.
func (e *Episode) Finish(answer string, stop schemas.StopReason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finishWith(answer, stop)
}

// finishWith ends the episode with an answer and a stop reason.
func (e *Episode) finishWith(answer string, stop schemas.StopReason) {
	if !e.finished {
		e.finished, e.answer, e.stop = true, answer, stop
	}
}

// Post gives the episode a reward that the agent computed itself, with its components by name, which may be nil: a Reward
// finds it in [Transcript.Posted] and may take it. The first call counts.
func (e *Episode) Post(reward float64, components map[string]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.posted == nil {
		e.posted = &Score{Total: reward, Components: maps.Clone(components)}
	}
}

// checkRunning returns the error of a move that an agent makes after a tool has ended the episode; nil before. The lock is held.
func (e *Episode) checkRunning() error {
	if e.ended {
		return &StoppedError{e.stop}
	}
	return nil
}

// Oldest is the policy version of the oldest sampled token, NoVersion before the first. It may be read by
// any goroutine.
func (e *Episode) Oldest() int64 { return e.oldest.Load() }

// sawVersions notes the versions of sampled tokens.
func (e *Episode) sawVersions(versions []int32) {
	for {
		before := e.oldest.Load()
		oldest := before
		for _, v := range versions {
			if oldest == int64(schemas.NoVersion) || int64(v) < oldest {
				oldest = int64(v)
			}
		}
		if oldest == before {
			return
		}
		if e.oldest.CompareAndSwap(before, oldest) {
			break
		}
	}
	if e.onOldest != nil {
		e.onOldest()
	}
}

// cacheNames returns the names under which engines keep the episode's contexts.
func (e *Episode) cacheNames() []string {
	names := []string{e.ticket.ID}
	for _, c := range e.contexts {
		if c.number > 0 {
			names = append(names, e.ticket.ID+"/"+strconv.Itoa(c.number))
		}
	}
	return names
}
