package toolworker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Link is where the tools of a process that are placed on workers are called: here, until a client is attached. The zero value
// is ready.
type Link struct {
	client atomic.Pointer[Client]
}

// Attach has the tools called at workers from now on.
func (l *Link) Attach(c *Client) { l.client.Store(c) }

// Place returns a tool that is called at workers where the link has a client, and here otherwise. It has the spec of the tool here.
func (l *Link) Place(here producers.Tool) producers.Tool { return placed{here, l} }

// placed is a tool with two places.
type placed struct {
	producers.Tool
	link *Link
}

// Here is the tool as it is called in this process.
func (p placed) Here() producers.Tool { return p.Tool }

// Cut is the bound on the kept part of its observations.
func (p placed) Cut() producers.Cut {
	if tool, ok := p.Tool.(producers.Bounded); ok {
		return tool.Cut()
	}
	return producers.DefaultCut()
}

// Open opens the episode's session.
func (p placed) Open(ctx context.Context, s producers.Session) error {
	if c := p.link.client.Load(); c != nil {
		return c.joinSession(ctx, s)
	}
	if tool, keeps := p.Tool.(producers.SessionTool); keeps {
		return tool.Open(ctx, s)
	}
	return nil
}

// Place implements [producers.Apart].
func (p placed) Place() string {
	if p.link.client.Load() == nil {
		return ""
	}
	return "at a tool worker (is weir tools up, with room by toolworker.sessions?)"
}

// Close gives the episode's session up.
func (p placed) Close(ctx context.Context, episode string) error {
	if c := p.link.client.Load(); c != nil {
		return c.leaveSession(ctx, episode)
	}
	if tool, keeps := p.Tool.(producers.SessionTool); keeps {
		return tool.Close(ctx, episode)
	}
	return nil
}

// Call calls the tool.
func (p placed) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	c := p.link.client.Load()
	if c == nil {
		return p.Tool.Call(ctx, call)
	}
	b, err := c.sessionOf(call.Episode)
	if err != nil {
		return producers.Observation{}, err
	}
	r, err := b.askSession(ctx, &schemas.ToolRequest{Op: schemas.ToolOpCall, Tool: p.Spec().Name, Arguments: call.Arguments, Index: call.Index, Seed: call.Seed})
	switch {
	case errors.Is(err, streams.ErrTooLarge):
		return producers.Observation{}, fmt.Errorf("the arguments have %d bytes, which is more than can be sent to a tool", len(call.Arguments))
	case errors.Is(err, errLost), errors.Is(err, errUnusable):
		return producers.Observation{}, fmt.Errorf("%w: %w", producers.ErrMayHaveRun, err)
	case err != nil:
		return producers.Observation{}, err
	case r.Outcome == schemas.ToolPanicked:
		fault, stack, _ := strings.Cut(r.Error, "\n")
		return producers.Observation{}, &producers.PanicError{Value: strings.TrimPrefix(fault, "panic: "), Stack: []byte(stack)}
	case r.Outcome == schemas.ToolFailed:
		return producers.Observation{}, errors.New(r.Error)
	case r.Observation == nil:
		return producers.Observation{}, fmt.Errorf("%w: %w: tool worker %s answered a call without what the tool said",
			producers.ErrMayHaveRun, producers.ErrUnavailable, r.Worker)
	}
	return producers.DecodeObservation(r.Observation), nil
}

// TakePlace is that of the tool here. At a worker the session has its place.
func (p placed) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	if p.link.client.Load() != nil {
		return false, nil
	}
	return producers.TakePlaceOf(ctx, p.Tool, call, patience)
}

// Effects are the effects of the tool here.
func (p placed) Effects() producers.Effects { return producers.EffectsOf(p.Tool) }

// sessionOf is the binding of an episode whose session is open.
func (c *Client) sessionOf(episode string) (*binding, error) {
	b := c.bindingOf(episode)
	if b == nil {
		return nil, fmt.Errorf("%w: episode %q has no open session at a tool worker", producers.ErrUnavailable, episode)
	}
	return b, nil
}

// Workspace is that of the episode's session.
func (p placed) Workspace(episode string) (producers.Workspace, bool) {
	c := p.link.client.Load()
	if c == nil {
		if tool, ok := p.Tool.(producers.Workspaced); ok {
			return tool.Workspace(episode)
		}
		return nil, false
	}
	b := c.bindingOf(episode)
	if b == nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return remoteWorkspace{b}, b.workspace
}

// remoteWorkspace is the workspace of a session at a worker.
type remoteWorkspace struct{ b *binding }

// ReadFile returns a file of at most limit bytes.
func (w remoteWorkspace) ReadFile(ctx context.Context, name string, limit int) ([]byte, error) {
	r, err := w.askRemote(ctx, &schemas.ToolRequest{Op: schemas.ToolOpRead, File: name, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return r.Data, nil
}

// Run runs a command.
func (w remoteWorkspace) Run(ctx context.Context, c producers.Command) (producers.Result, error) {
	command := &schemas.ToolCommand{Argv: c.Argv, Stdin: c.Stdin, Env: c.Env, Timeout: c.Timeout, Output: c.Output}
	for name, data := range c.Files {
		command.Files = append(command.Files, schemas.ToolFile{Name: name, Data: data})
	}
	r, err := w.askRemote(ctx, &schemas.ToolRequest{Op: schemas.ToolOpRun, Command: command})
	if err != nil {
		return producers.Result{}, err
	}
	if r.Result == nil {
		return producers.Result{}, fmt.Errorf("%w: tool worker %s ran a command and does not say how it ended", producers.ErrUnavailable, r.Worker)
	}
	return producers.Result{Exit: r.Result.Exit, Stdout: r.Result.Stdout, Stderr: r.Result.Stderr, TimedOut: r.Result.TimedOut, Took: r.Result.Took}, nil
}

func (w remoteWorkspace) askRemote(ctx context.Context, req *schemas.ToolRequest) (*schemas.ToolReply, error) {
	r, err := w.b.askSession(ctx, req)
	if err != nil {
		return nil, err
	}
	if r.Outcome != schemas.ToolOK {
		return nil, errors.New(r.Error)
	}
	return r, nil
}
