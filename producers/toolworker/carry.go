package toolworker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// carryOut carries a request out.
func (one *session) carryOut(r *request) *schemas.ToolReply {
	switch r.Op {
	case schemas.ToolOpOpen:
		return one.startTools(r)
	case schemas.ToolOpCall:
		return one.callTool(r)
	default:
		return one.lookInside(r)
	}
}

// startTools opens the tools that keep state, after the replaced opening has ended.
func (one *session) startTools(r *request) *schemas.ToolReply {
	if one.before != nil {
		select {
		case <-one.before:
		case <-one.ctx.Done():
			return failureReply(context.Cause(one.ctx))
		}
	}
	told := producers.Session{Run: r.Run, Episode: r.Session, Task: r.Task, Source: r.Source, Seed: r.Seed, World: r.World}
	for _, tool := range one.server.tools[one.task] {
		keeps, ok := tool.(producers.SessionTool)
		if !ok {
			continue
		}
		err := producers.Guard(func() error { return keeps.Open(one.ctx, told) })
		if errors.Is(err, producers.ErrPrompt) {
			return failureReply(fmt.Errorf("open a session of tool %s: %w", tool.Spec().Name, err))
		}
		if err != nil {
			return failureReply(fmt.Errorf("open a session of tool %s: %w: %w", tool.Spec().Name, producers.ErrUnavailable, err))
		}
		one.opened = append(one.opened, keeps)
	}
	return &schemas.ToolReply{Outcome: schemas.ToolOK, Workspace: one.firstWorkspace() != nil}
}

// callTool calls a tool.
func (one *session) callTool(r *request) *schemas.ToolReply {
	tool := one.tools[r.Tool]
	if tool == nil {
		one.server.metrics.countRefused("wrong")
		return &schemas.ToolReply{Outcome: schemas.ToolRefused, Error: fmt.Sprintf(
			"tool worker %s serves no tool %q of task %q: give every role the same configuration", one.server.cfg.Name, r.Tool, one.task,
		)}
	}
	began := time.Now()
	var said producers.Observation
	err := producers.Guard(func() (err error) {
		ctx := producers.WithHold(one.ctx, func(string) func() { return one.holdCaller(r) })
		said, err = tool.Call(ctx, producers.Call{Arguments: r.Arguments, Run: r.Run, Episode: r.Session, Index: r.Index, Seed: r.Seed})
		return err
	})
	reply := failureReply(err)
	if err == nil {
		reply = &schemas.ToolReply{Outcome: schemas.ToolOK, Observation: producers.EncodeObservation(said)}
	}
	reply.Workspace = one.firstWorkspace() != nil
	one.server.metrics.countCall(r.Tool, string(reply.Outcome), time.Since(began))
	return reply
}

// lookInside asks the session's workspace.
func (one *session) lookInside(r *request) *schemas.ToolReply {
	w := one.firstWorkspace()
	if w == nil {
		return failureReply(fmt.Errorf("%w: the session has no workspace", producers.ErrUnavailable))
	}
	reply := &schemas.ToolReply{Outcome: schemas.ToolOK, Workspace: true}
	err := producers.Guard(func() (err error) {
		if r.Op == schemas.ToolOpRead {
			reply.Data, err = w.ReadFile(one.ctx, r.File, r.Limit)
			return err
		}
		c := producers.Command{
			Argv: r.Command.Argv, Stdin: r.Command.Stdin, Env: r.Command.Env, Timeout: r.Command.Timeout, Output: r.Command.Output,
		}
		for _, file := range r.Command.Files {
			if c.Files == nil {
				c.Files = map[string][]byte{}
			}
			c.Files[file.Name] = file.Data
		}
		ended, err := w.Run(one.ctx, c)
		reply.Result = &schemas.ToolResult{Exit: ended.Exit, Stdout: ended.Stdout, Stderr: ended.Stderr, TimedOut: ended.TimedOut, Took: ended.Took}
		return err
	})
	if err != nil {
		return failureReply(err)
	}
	return reply
}

// firstWorkspace is the first that a tool of the session has; nil if none has.
func (one *session) firstWorkspace() producers.Workspace {
	for _, tool := range one.opened {
		if has, ok := tool.(producers.Workspaced); ok {
			if w, open := has.Workspace(one.name); open {
				return w
			}
		}
	}
	return nil
}

// failureReply is the reply that an error becomes.
func failureReply(err error) *schemas.ToolReply {
	reply := &schemas.ToolReply{Outcome: schemas.ToolFailed}
	if err == nil {
		return reply
	}
	reply.Error = err.Error()
	if panicked, ok := errors.AsType[*producers.PanicError](err); ok {
		reply.Outcome, reply.Error = schemas.ToolPanicked, panicked.Error()+"\n"+string(panicked.Stack)
	} else if errors.Is(err, producers.ErrUnavailable) || errors.Is(err, errEnded) {
		reply.Outcome = schemas.ToolUnavailable
	}
	if reply.Error == "" {
		reply.Error = "the tool failed, and does not say why"
	}
	return reply
}
