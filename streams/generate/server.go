package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Handler serves a call. It emits the sampled tokens as they come, the last chunk with Done set; emit sets Episode, Engine and
// Index. emit fails when the call is over: the caller cancelled it, or the chunk could not be sent; the chunk's memory is the
// handler's again when emit returns. ctx ends when the caller cancels or the server stops. An error returned before Done is sent
// to the caller; an error that wraps [ErrElsewhere], or that comes of the server's stopping, lets the caller go on at another
// engine.
type Handler func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error

// Option changes how [Serve] serves.
type Option func(*server)

// The usual bounds of an engine.
const (
	defaultCalls = 1024
	// maxQueued bounds the calls that wait for a handler; the next call is told to go elsewhere.
	maxQueued = 4096
	// keepAlive is how long a call is silent before an empty chunk is sent for it. Callers give an engine up after
	// [ClientOptions.Silence], which must be some times longer.
	keepAlive = time.Second
)

// WithMaxCalls bounds the calls that are in a handler at once. Zero or less is the default, 1024.
func WithMaxCalls(n int) Option {
	return func(s *server) {
		if n > 0 {
			s.maxCalls = n
		}
	}
}

// WithForget sets a function that is called when an episode will not call again, so that its cache can go. f must return soon.
func WithForget(f func(episode string)) Option {
	return func(s *server) { s.forget = f }
}

// server is an engine's side of the call.
type server struct {
	run       Run
	engine    string
	handle    Handler
	forget    func(string)
	maxCalls  int
	keepAlive time.Duration

	slots chan struct{}
	wg    sync.WaitGroup
	// inbox begins the reply subjects of chunks: the broker answers there where nobody listens for a chunk.
	inbox string
	mu    sync.Mutex
	calls map[string]*serverCall // by name
	next  uint64                 // number of the next call
}

// Serve answers the run's generate calls under the name of an engine, each call in a goroutine of its own, until ctx ends; then it
// cancels the calls that run, tells their callers to go to another engine, waits for the handlers and returns nil. It fails if the
// name is illegal or the subscriptions are refused. Two engines of the same name would share calls: names must differ.
func Serve(ctx context.Context, run Run, engine string, h Handler, opts ...Option) error {
	if err := streams.CheckName("engine", engine); err != nil {
		return err
	}
	s := &server{
		run: run, engine: engine, handle: h, maxCalls: defaultCalls, keepAlive: keepAlive,
		calls: make(map[string]*serverCall), inbox: run.NATS().NewInbox() + ".",
	}
	for _, opt := range opts {
		opt(s)
	}
	s.slots = make(chan struct{}, s.maxCalls)
	return s.serveCall(ctx)
}

func (s *server) serveCall(ctx context.Context) error {
	// A single channel for all subscriptions keeps a caller's cancel behind its request.
	in := make(chan *nats.Msg, maxQueued)
	subs, err := s.subscribeCalls(in)
	defer s.leaveCall(subs, in)
	if err != nil {
		return err
	}

	calls, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	tick := time.NewTicker(max(s.keepAlive/2, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-in:
			s.receiveCall(calls, m)
		case now := <-tick.C:
			s.keepCallsAlive(now)
			for _, sub := range subs {
				if !sub.IsValid() {
					return fmt.Errorf("serve generate calls as %s: %w", s.engine, streams.ErrClosed)
				}
			}
		}
	}
}

func (s *server) subscribeCalls(in chan *nats.Msg) ([]*nats.Subscription, error) {
	var subs []*nats.Subscription
	subject := s.run.GenerateSubject()
	for _, at := range []struct{ subject, queue string }{
		{subject, queueGroup},
		{engineSubject(subject, s.engine), ""},
		{controlSubject(subject), ""},
		{s.inbox + "*", ""},
	} {
		sub, err := s.run.NATS().ChanQueueSubscribe(at.subject, at.queue, in)
		if err != nil {
			return subs, fmt.Errorf("subscribe to %s: %w", at.subject, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// leaveCall ends the subscriptions and sends the calls that still came to other engines: without an answer a caller would wait for as
// long as its Silence.
func (s *server) leaveCall(subs []*nats.Subscription, in chan *nats.Msg) {
	for _, sub := range subs {
		// Unlike Unsubscribe, Drain still takes the messages that the broker had sent. It fails only when the connection is gone.
		_ = sub.Drain()
	}
	if err := s.run.NATS().FlushTimeout(time.Second); err != nil {
		s.run.Log().Warn("calls may have been lost when generation stopped", "engine", s.engine, "err", err)
	}
	for {
		select {
		case m := <-in:
			if m.Reply != "" {
				c := &serverCall{server: s, reply: m.Reply, episode: unknownEpisode}
				c.failCall(errors.New("the engine stops"), true)
			}
		default:
			return
		}
	}
}

func (s *server) receiveCall(ctx context.Context, m *nats.Msg) {
	if token, is := strings.CutPrefix(m.Subject, s.inbox); is {
		s.leaveOrphan(token)
		return
	}
	switch m.Header.Get(headerOp) {
	case opCancel:
		s.mu.Lock()
		c := s.calls[string(m.Data)]
		s.mu.Unlock()
		if c != nil {
			c.cancel()
		}
	case opForget:
		if s.forget != nil {
			s.forget(string(m.Data))
		}
	default:
		if m.Reply == "" {
			s.run.Log().Warn("generate call without a reply subject dropped", "engine", s.engine)
			return
		}
		s.beginCall(ctx, m)
	}
}

// leaveOrphan ends a call whose chunks reach nobody: its caller is dead, or has missed a chunk and asks again.
func (s *server) leaveOrphan(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.token == token {
			c.cancel()
		}
	}
}

// beginCall starts a call, or refuses it where its request is bad or too many calls wait.
func (s *server) beginCall(ctx context.Context, m *nats.Msg) {
	c := &serverCall{server: s, reply: m.Reply, episode: unknownEpisode, last: time.Now()}
	name := cmp.Or(m.Header.Get(headerCall), m.Reply)
	req, err := s.readRequest(m)
	if req != nil {
		c.episode = req.Episode
	}
	if err != nil {
		c.failCall(err, false)
		return
	}
	ctx, c.cancel = context.WithCancel(ctx)
	if refusal := s.enterCall(name, c); refusal != nil {
		c.cancel()
		c.endCall(refusal)
		return
	}
	s.wg.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.calls, name)
			s.mu.Unlock()
			c.cancel()
		}()
		c.serveRequest(ctx, req)
	})
}

// readRequest is the request in a message, nil where it cannot be read, and the fault.
func (s *server) readRequest(m *nats.Msg) (*schemas.GenerateRequest, error) {
	req := new(schemas.GenerateRequest)
	if err := schemas.Unmarshal(m.Data, req); err != nil {
		return nil, err
	}
	if err := req.Validate(); err != nil {
		return req, err
	}
	if req.Run != s.run.Name() {
		return req, fmt.Errorf("%w: request of run %q at an engine of run %q", schemas.ErrInvalid, req.Run, s.run.Name())
	}
	if req.Pinned != isPinned(s.run) {
		return req, fmt.Errorf("%w: pinned is %t in a request to %s", schemas.ErrInvalid, req.Pinned, s.run.GenerateSubject())
	}
	return req, nil
}

// enterCall adds a call under its name, or says why not.
func (s *server) enterCall(name string, c *serverCall) (refusal *schemas.GenerateChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[name] != nil {
		err := fmt.Errorf("%w: another call has the name %.80q", schemas.ErrInvalid, name)
		return &schemas.GenerateChunk{Error: err.Error()}
	}
	if len(s.calls) >= s.maxCalls+maxQueued {
		return &schemas.GenerateChunk{Error: fmt.Sprintf("%d calls are waiting", maxQueued), Retry: true, Busy: true}
	}
	s.calls[name] = c
	c.token = strconv.FormatUint(s.next, 36)
	s.next++
	return nil
}

func (s *server) keepCallsAlive(now time.Time) {
	s.mu.Lock()
	silent := make([]*serverCall, 0, len(s.calls))
	for _, c := range s.calls {
		silent = append(silent, c)
	}
	s.mu.Unlock()
	for _, c := range silent {
		c.keepAlive(now)
	}
}

// serverCall is a call that is being served.
type serverCall struct {
	server  *server
	reply   string
	token   string // names the call where the broker answers its chunks
	episode string
	cancel  context.CancelFunc

	mu    sync.Mutex
	index int
	done  bool
	last  time.Time
	buf   []byte
}

func (c *serverCall) serveRequest(ctx context.Context, req *schemas.GenerateRequest) {
	select {
	case c.server.slots <- struct{}{}:
		defer func() { <-c.server.slots }()
	case <-ctx.Done():
		c.failCall(context.Cause(ctx), true)
		return
	}
	err := c.server.handle(ctx, req, func(chunk *schemas.GenerateChunk) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return c.sendChunk(chunk)
	})
	switch {
	case err == nil:
		c.failCall(errors.New("the engine ended the call without its last chunk"), false)
	case ctx.Err() != nil || errors.Is(err, ErrElsewhere):
		c.failCall(err, true)
	default:
		c.failCall(err, false)
	}
}

func (c *serverCall) sendChunk(chunk *schemas.GenerateChunk) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return fmt.Errorf("emit after the last chunk: %w", streams.ErrClosed)
	}
	chunk.Episode, chunk.Engine, chunk.Index = c.episode, c.server.engine, c.index
	data, err := schemas.Append(c.buf[:0], chunk)
	if err != nil {
		return err
	}
	c.buf = data
	m := &nats.Msg{Subject: c.reply, Data: data}
	// Between accounts the broker would make up a subject for each answer.
	if c.token != "" && !strings.HasPrefix(c.reply, streams.ReplyPrefix) {
		m.Reply = c.server.inbox + c.token
	}
	if err := c.server.run.NATS().PublishMsg(m); err != nil {
		return fmt.Errorf("send a chunk: %w", err)
	}
	c.index++
	c.done = chunk.Done
	c.last = time.Now()
	if c.done && strings.HasPrefix(c.reply, streams.ReplyPrefix) {
		// An empty message tells the broker that the call is over; else it forgets the call later.
		_ = c.server.run.NATS().Publish(c.reply, nil)
	}
	return nil
}

// failCall ends the call with an error, unless it has ended.
func (c *serverCall) failCall(err error, retry bool) {
	c.endCall(&schemas.GenerateChunk{Error: err.Error(), Retry: retry})
}

// endCall ends the call with the chunk of an error, unless it has ended.
func (c *serverCall) endCall(chunk *schemas.GenerateChunk) {
	chunk.Done, chunk.Stop = true, schemas.GenerateError
	err := c.sendChunk(chunk)
	if err != nil && !errors.Is(err, streams.ErrClosed) {
		c.server.run.Log().Warn("could not end a generate call", "engine", c.server.engine, "episode", c.episode, "err", err)
	}
}

// keepAlive sends an empty chunk if nothing was sent for long. A call whose handler is sending at the moment needs none.
func (c *serverCall) keepAlive(now time.Time) {
	if !c.mu.TryLock() {
		return
	}
	silent := !c.done && now.Sub(c.last) >= c.server.keepAlive
	c.mu.Unlock()
	if silent {
		_ = c.sendChunk(new(schemas.GenerateChunk)) // the next tick tries again
	}
}
