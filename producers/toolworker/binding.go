package toolworker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// binding is an episode's session at a worker, as its caller sees it. All tools of the episode share it.
type binding struct {
	client  *Client
	told    producers.Session
	opening string
	worker  string
	users   int // tools that have it open; guarded by the client's lock
	// opened is closed when the opening has ended, with err or without.
	opened chan struct{}
	err    error

	mu          sync.Mutex
	next        int
	outstanding map[int]struct{}
	workspace   bool
}

// joinSession joins the session of an episode, which the first of its tools opens.
func (c *Client) joinSession(ctx context.Context, told producers.Session) error {
	c.mu.Lock()
	b := c.bindings[told.Episode]
	first := b == nil
	if first {
		b = &binding{client: c, told: told, opened: make(chan struct{}), next: 1, outstanding: map[int]struct{}{}}
		c.bindings[told.Episode] = b
	}
	b.users++
	c.mu.Unlock()
	if first {
		b.err = b.findWorker(ctx)
		close(b.opened)
	}
	<-b.opened // its own context bounds it
	if b.err != nil {
		c.dropTool(b)
	}
	return b.err
}

// dropTool takes a tool from a binding, and reports whether it was the last.
func (c *Client) dropTool(b *binding) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.users--
	if b.users == 0 && c.bindings[b.told.Episode] == b {
		delete(c.bindings, b.told.Episode)
	}
	return b.users == 0
}

// leaveSession gives a tool's part of a session up; with the last the session is closed.
func (c *Client) leaveSession(ctx context.Context, episode string) error {
	b := c.bindingOf(episode)
	if b == nil || !c.dropTool(b) || b.worker == "" {
		return nil
	}
	_, err := b.askSession(ctx, &schemas.ToolRequest{Op: schemas.ToolOpClose})
	return err
}

func (c *Client) bindingOf(episode string) *binding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bindings[episode]
}

// How long an episode waits before it looks for a worker again: the first times not at all, for another may have room.
const (
	elsewhere = 3
	lookAgain = 500 * time.Millisecond
	longest   = 5 * time.Second
)

// findWorker finds a worker with room. While there is none, or all are full, it waits.
func (b *binding) findWorker(ctx context.Context) error {
	c := b.client
	began := time.Now()
	for try := 0; ; try++ {
		b.opening = rand.Text() // no two attempts have the same name: a worker that took an earlier attempt too late learns by the name that it is replaced
		r, err := c.exchangeRequest(ctx, "", &schemas.ToolRequest{
			Run: c.stream.Name(), Session: b.told.Episode, Opening: b.opening, Op: schemas.ToolOpOpen,
			Task: b.told.Task, Source: b.told.Source, Seed: b.told.Seed, World: b.told.World,
		})
		if err == nil && r.Outcome == schemas.ToolOK {
			b.worker, b.workspace = r.Worker, r.Workspace
			c.tellWorkers(&schemas.ToolRequest{Run: c.stream.Name(), Session: b.told.Episode, Opening: b.opening, Op: schemas.ToolOpEnd})
			return nil
		}
		if err != nil { // a worker may have taken it
			c.tellWorkers(&schemas.ToolRequest{Run: c.stream.Name(), Session: b.told.Episode, Opening: b.opening, Op: schemas.ToolOpClose})
		}
		pause := lookAgain
		switch {
		case err != nil && !errors.Is(err, errLost) && !errors.Is(err, errUnreached) && !errors.Is(err, errNoWorker):
			return err
		case err == nil && r.Outcome == schemas.ToolBusy:
			pause = r.RetryAfter
		case err == nil && r.Outcome == schemas.ToolFailed:
			return fmt.Errorf("%w: tool worker %s: %s", producers.ErrPrompt, r.Worker, r.Error)
		case err == nil && r.Outcome != schemas.ToolGone: // an opening that was replaced is tried anew
			return fmt.Errorf("%w: tool worker %s: %s", producers.ErrUnavailable, r.Worker, r.Error)
		}
		if try < elsewhere && err == nil {
			continue
		}
		if waited := time.Since(began); waited >= c.opts.Warn {
			c.warnOfNoWorker(waited, b.told.Episode, err)
		}
		if err := c.pauseBeforeRetry(ctx, pause, try-elsewhere); err != nil {
			return fmt.Errorf("%w: %w", producers.ErrNoRoom, err)
		}
	}
}

// warnAgain is how often a process says at most that its episodes wait for a worker.
const warnAgain = time.Minute

// warnOfNoWorker says that an episode waits for a tool worker: err is nil where all that answer are full.
func (c *Client) warnOfNoWorker(waited time.Duration, episode string, err error) {
	c.mu.Lock()
	due := c.warned.IsZero() || time.Since(c.warned) >= warnAgain
	if due {
		c.warned = time.Now()
	}
	c.mu.Unlock()
	if !due {
		return
	}
	why := "each is full or stopping: start more, or raise toolworker.sessions (sandbox.most for tools in sandboxes)"
	if err != nil {
		why = err.Error() + ": start weir tools with this configuration"
	}
	c.stream.Log().Warn("episodes wait for a tool worker", "first", episode, "for", waited.Round(time.Second), "why", why)
}

// pauseBeforeRetry waits before another try: longer with each, with jitter so that callers part.
func (c *Client) pauseBeforeRetry(ctx context.Context, d time.Duration, doublings int) error {
	d = min(d<<min(max(doublings, 0), 4), max(d, longest))
	timer := time.NewTimer(d/2 + mrand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.closed:
		return fmt.Errorf("call a tool worker: %w", streams.ErrClosed)
	case <-c.opts.Ending:
		return fmt.Errorf("%w: no tool worker has room, and the caller is stopping", producers.ErrUnavailable)
	}
}

// numberRequest gives a request the next sequence number, and the numbers of the replies that have come.
func (b *binding) numberRequest(req *schemas.ToolRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	req.Run, req.Session, req.Opening, req.Sequence = b.client.stream.Name(), b.told.Episode, b.opening, b.next
	b.outstanding[b.next] = struct{}{}
	b.next++
	req.Answered = b.next
	for sequence := range b.outstanding {
		req.Answered = min(req.Answered, sequence)
	}
}

// askSession makes a request of the session. While the worker has no room the same request is sent again. The reply has the outcome ok,
// failed or panicked; any other is an error of the machinery's.
func (b *binding) askSession(ctx context.Context, req *schemas.ToolRequest) (*schemas.ToolReply, error) {
	b.numberRequest(req)
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.outstanding, req.Sequence)
	}()
	for try := 0; ; try++ {
		r, err := b.client.exchangeRequest(ctx, b.worker, req)
		if err != nil {
			return nil, err
		}
		switch r.Outcome {
		case schemas.ToolOK, schemas.ToolFailed, schemas.ToolPanicked:
			b.mu.Lock()
			b.workspace = r.Workspace
			b.mu.Unlock()
			return r, nil
		case schemas.ToolBusy:
			goOn := producers.HoldCall(ctx, "room at tool worker "+b.worker+" (toolworker.queue)")
			err := b.client.pauseBeforeRetry(ctx, r.RetryAfter, try)
			goOn()
			if err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: tool worker %s: %s: %s", producers.ErrUnavailable, r.Worker, r.Outcome, r.Error)
		}
	}
}
