package producers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Call makes a single call as [Context.Calls] does.
func (c *Context) Call(ctx context.Context, name, arguments string) (Observation, error) {
	observations, err := c.Calls(ctx, []ToolCall{{name, arguments}})
	if err != nil {
		return Observation{}, err
	}
	return observations[0], nil
}

// Calls calls tools for the context's last turn, at the same time, and records them there in the order of the calls, which is that of
// the observations. Process rewards are added up.
//
// A failure of a tool, and a panic, comes back as an observation that says so. When the turn limit leaves room for some of the calls, the
// others are not made and are told so; when it leaves room for none, the episode ends. A tool that returns an answer has finished the
// episode with it when Calls returns, and Done is set. A tool's text is sanitized: see [Cut].
func (c *Context) Calls(ctx context.Context, calls []ToolCall) ([]Observation, error) {
	if c.turn == nil {
		return nil, errors.New("call a tool: the policy has not sampled anything yet")
	}
	if len(calls) == 0 {
		return nil, nil
	}
	e := c.e
	e.mu.Lock()
	if err := e.checkRunning(); err != nil {
		e.mu.Unlock()
		return nil, err
	}
	place := c.calls
	left, most := c.callsLeft()
	allowed := min(len(calls), left)
	if allowed <= 0 {
		e.mu.Unlock()
		return nil, &StoppedError{schemas.StopTurns}
	}
	index := e.journal.firstIndex(callPlace{c.number, place}, allowed, e.calls)
	e.calls, c.calls = e.calls+allowed, c.calls+allowed
	e.mu.Unlock()

	if err := c.takePlaces(ctx, calls[:allowed], index); err != nil {
		return nil, err
	}
	results, broke := make([]result, allowed), make([]error, allowed)
	var making sync.WaitGroup
	for i, call := range calls[:allowed] {
		one := func() {
			broke[i] = guardPart(fmt.Sprintf("call of tool %q", call.Name), func() error {
				results[i] = c.makeCall(ctx, call, callPlace{c.number, place + i}, index+i)
				return nil
			})
		}
		if allowed == 1 {
			one()
			break
		}
		making.Go(one)
	}
	making.Wait()
	if err := cmp.Or(broke...); err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	observations := make([]Observation, 0, len(calls))
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, r := range results {
		if r.own && r.err != nil || errors.Is(r.err, ErrUnavailable) {
			return nil, blamePart(PartTool, calls[i].Name, e.countsRoom(r.err))
		}
		e.recordCall(c.turn, &r)
		observations = append(observations, r.said)
	}
	for range len(calls) - allowed {
		observations = append(observations, Observation{Text: fmt.Sprintf("error: not called: the limit is %d calls", most)})
	}
	return observations, nil
}

// result is a call that was made.
type result struct {
	call schemas.ToolCall
	at   time.Time
	said Observation
	err  error
	own  bool // the tool is the agent's
}

// makeCall makes a call of a tool, or takes its answer from the journal. The agent's own tools are part of its moves, and not in the journal.
func (c *Context) makeCall(ctx context.Context, call ToolCall, at callPlace, index int) result {
	e := c.e
	tool, own := c.findTool(call.Name)
	var recorded *recordedCall
	if e.journal != nil && tool != nil && !own {
		var given *result
		if recorded, given = e.journal.beginCall(ctx, tool, call, at, index); given != nil {
			given.at = time.Now()
			given.call.Tool, given.call.Arguments = schemas.CallText(call.Name), schemas.CallText(call.Arguments)
			c.watchedCall(call, recorded.entry.Index)
			c.notifyMove(Move{
				Kind: MoveObservation, Text: given.said.Text, Tool: given.call.Tool, Call: recorded.entry.Index,
				Took: given.call.Duration, Failed: given.call.Failed,
			}, nil)
			return *given
		}
		index = recorded.entry.Index
	}
	r := c.makeFreshCall(ctx, tool, own, call, index)
	if recorded != nil {
		r = recorded.endCall(ctx, r)
	}
	return r
}

// makeFreshCall makes a call of a tool.
func (c *Context) makeFreshCall(ctx context.Context, tool Tool, own bool, call ToolCall, index int) result {
	e := c.e
	c.watchedCall(call, index)
	start := time.Now()
	returned, ended := e.activity.beginCall(PartTool, schemas.CallText(call.Name)), func() {}
	if !own { // what an agent's own tool waits for is its other contexts'
		ctx, ended = context.WithValue(ctx, workKey{}, true), e.beginWork()
	}
	said, err := e.callTool(ctx, tool, call, index)
	ended()
	returned()
	took := time.Since(start)
	r := result{at: start, call: schemas.ToolCall{Tool: schemas.CallText(call.Name), Arguments: schemas.CallText(call.Arguments), Duration: took}, said: said, err: err, own: own}
	if r.call.Tool == "" {
		r.call.Tool = unnamed
	}
	if err != nil {
		r.call.Error = schemas.CallText(err.Error())
		text := err.Error()
		if panicked, ok := errors.AsType[*PanicError](err); ok {
			text = "the tool broke down"
			r.call.Error = schemas.CallText(text + ": " + panicked.Error() + "\n" + string(panicked.Stack))
		}
		r.said = Observation{Text: "error: " + text}
	}
	r.call.Failed = err != nil || said.Errors > 0
	r.said.Text = e.sanitize(tool, r.said.Text)
	if context.Cause(ctx) == nil {
		e.env.metrics.observeCall(call.Name, tool != nil, took, err)
		c.notifyMove(Move{Kind: MoveObservation, Text: r.said.Text, Tool: r.call.Tool, Call: index, Took: took, Failed: r.call.Failed}, nil)
	}
	return r
}

// unnamed stands for the tool of a call that names none.
const unnamed = "(none)"

// recordCall records a call and its result in their turn. The lock is held.
func (e *Episode) recordCall(t *turn, r *result) {
	if r.said.Reward != nil {
		t.ProcessReward += *r.said.Reward
	}
	for name, v := range r.said.Metrics {
		if e.reported == nil {
			e.reported = map[string]float64{}
		}
		e.reported[name] += v
	}
	switch {
	case r.said.Answer != nil:
		r.said.Done = true
		e.finishWith(*r.said.Answer, schemas.StopAnswer)
	case r.said.Done:
		e.finishWith("", schemas.StopTool)
	}
	e.ended = e.ended || r.said.Done
	t.Turn.Calls, t.said = append(t.Turn.Calls, r.call), append(t.said, r.said)
	t.called = append(t.called, r.at)
}

// findTool returns the episode's tool of a name, nil where there is none.
func (e *Episode) findTool(name string) Tool {
	for _, tool := range e.env.Tools {
		if tool.Spec().Name == name {
			return tool
		}
	}
	return nil
}

// callTool calls a tool within its session; a panic is an error of the tool.
func (e *Episode) callTool(ctx context.Context, tool Tool, call ToolCall, index int) (said Observation, err error) {
	if tool == nil {
		return Observation{}, fmt.Errorf("there is no tool named %q", call.Name)
	}
	if text, replaced := e.env.Results[index]; replaced {
		return Observation{Text: text}, nil
	}
	err = Guard(func() (err error) {
		said, err = tool.Call(e.env.metrics.withAbandonCount(ctx, call.Name), Call{
			Arguments: call.Arguments, Run: e.ticket.Run, Episode: e.ticket.ID, Index: index, Seed: e.drawingSeed(),
		})
		return err
	})
	return said, err
}

type abandonKey struct{}

// Abandoned counts a call of a tool as left behind: its time is over and it still runs. The returned function says that it has ended. ctx
// is the context of the call.
func Abandoned(ctx context.Context) (ended func()) {
	if count, ok := ctx.Value(abandonKey{}).(func(float64)); ok {
		count(1)
		return func() { count(-1) }
	}
	return func() {}
}
