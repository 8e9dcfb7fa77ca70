package toolworker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// ClientOptions say when a caller gives a worker up.
type ClientOptions struct {
	// Again is how long a worker may be silent before a request is sent again; 0 is 2 s. Workers that live say something every second.
	Again time.Duration
	// Lost is how long a worker may be silent before its sessions are lost; 0 is 10 s. While this process has no broker the time
	// stands still.
	Lost time.Duration
	// Warn is how long an episode waits for a worker before that is logged; 0 is 5 s.
	Warn time.Duration
	// Ending is closed when the caller is about to stop: an episode that no worker has taken then fails rather than wait. A nil
	// channel is never closed.
	Ending <-chan struct{}
}

// Client calls the run's tool workers. It is safe for concurrent use.
type Client struct {
	stream Stream
	opts   ClientOptions
	prefix string // of reply subjects, ends with a dot

	mu       sync.Mutex
	sub      *nats.Subscription
	closed   chan struct{}
	next     uint64
	waiting  map[string]chan *nats.Msg // by the last token of the reply subject
	bindings map[string]*binding       // by episode
	warned   time.Time                 // when it was last said that no worker takes a session
}

// NewClient is a caller of the run's tool workers.
func NewClient(stream Stream, opts ClientOptions) *Client {
	if opts.Again <= 0 {
		opts.Again = 2 * time.Second
	}
	if opts.Lost <= 0 {
		opts.Lost = 10 * time.Second
	}
	if opts.Warn <= 0 {
		opts.Warn = 5 * time.Second
	}
	return &Client{
		stream: stream, opts: opts, prefix: stream.NATS().NewInbox() + ".", closed: make(chan struct{}),
		waiting: map[string]chan *nats.Msg{}, bindings: map[string]*binding{},
	}
}

// Close ends the requests that wait, with [streams.ErrClosed], and gives the subscription back. Sessions that are open expire.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		return
	default:
	}
	close(c.closed)
	if c.sub != nil {
		_ = c.sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	}
}

// mostReplies bounds a request's replies that were not read yet. Further replies are asked for again.
const mostReplies = 64

// listenReplies begins to wait for the replies to a request.
func (c *Client) listenReplies() (replies <-chan *nats.Msg, reply string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		return nil, "", fmt.Errorf("call a tool worker: %w", streams.ErrClosed)
	default:
	}
	if c.sub == nil {
		if c.sub, err = c.stream.NATS().Subscribe(c.prefix+"*", c.receiveReply); err != nil {
			return nil, "", fmt.Errorf("subscribe to replies: %w", err)
		}
	}
	token := strconv.FormatUint(c.next, 36)
	c.next++
	in := make(chan *nats.Msg, mostReplies)
	c.waiting[token] = in
	return in, c.prefix + token, nil
}

func (c *Client) forgetReplies(reply string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, strings.TrimPrefix(reply, c.prefix))
}

func (c *Client) receiveReply(m *nats.Msg) {
	c.mu.Lock()
	in := c.waiting[strings.TrimPrefix(m.Subject, c.prefix)]
	c.mu.Unlock()
	select {
	case in <- m: // never where nobody waits: in is nil
	default:
	}
}

// errLost is why a request has no reply.
var (
	errLost      = fmt.Errorf("%w: the tool worker is lost", producers.ErrUnavailable)
	errUnreached = fmt.Errorf("%w: the tool worker is gone", producers.ErrUnavailable) // and has got nothing of the request
	errUnusable  = fmt.Errorf("%w: the reply of a tool worker cannot be used", producers.ErrUnavailable)
	errNoWorker  = fmt.Errorf("%w: no tool worker of the run answers", producers.ErrUnavailable)
)

// exchangeRequest sends a request, to a worker or where worker is "" to any, and waits for its reply. It is sent again while the
// worker is silent. The reply has Done set.
func (c *Client) exchangeRequest(ctx context.Context, worker string, req *schemas.ToolRequest) (*schemas.ToolReply, error) {
	data, err := schemas.Marshal(req)
	if err == nil {
		err = req.Validate()
	}
	if err != nil {
		return nil, err
	}
	if limit := c.stream.NATS().MaxPayload(); limit > 0 && int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: a %s request to a tool worker has %d bytes, and the broker takes messages of %d", streams.ErrTooLarge, req.Op, len(data), limit)
	}
	replies, reply, err := c.listenReplies()
	if err != nil {
		return nil, err
	}
	defer c.forgetReplies(reply)
	e := exchange{client: c, req: req, worker: worker, reply: reply, data: data, heard: time.Now()}
	if err := e.sendRequest(); err != nil {
		return nil, err
	}
	return e.waitReply(ctx, replies)
}

// exchange is a request without a reply yet.
type exchange struct {
	client *Client
	req    *schemas.ToolRequest
	worker string // "" before a worker has taken it
	reply  string
	data   []byte
	heard  time.Time // when the worker last sent something
	// sent counts the messages of the request, refused the messages that the broker could not deliver.
	sent, refused int
}

func (e *exchange) sendRequest() error {
	stream := e.client.stream
	subject := stream.ToolsSubject()
	if e.worker != "" {
		subject = workerSubject(subject, e.worker)
	}
	e.sent++
	err := stream.NATS().PublishMsg(&nats.Msg{Subject: subject, Reply: e.reply, Data: e.data})
	if err != nil && !streams.IsTransient(err) {
		return fmt.Errorf("call a tool worker: %w", err)
	}
	return nil
}

// waitReply waits for the reply. The time of the episode stands still while the worker says that the request waits for its turn.
func (e *exchange) waitReply(ctx context.Context, replies <-chan *nats.Msg) (*schemas.ToolReply, error) {
	c := e.client
	var goOn func()
	hold := func(waits bool) {
		switch {
		case waits && goOn == nil:
			goOn = producers.HoldCall(ctx, "its turn at tool worker "+e.worker+" (toolworker.calls)")
		case !waits && goOn != nil:
			goOn()
			goOn = nil
		}
	}
	defer hold(false)
	again := time.NewTicker(c.opts.Again)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			if e.worker == "" || goOn != nil && e.req.Op == schemas.ToolOpOpen { // nobody has taken it, or it waits there
				return nil, fmt.Errorf("%w: %w", producers.ErrNoRoom, context.Cause(ctx))
			}
			return nil, context.Cause(ctx)
		case <-c.closed:
			return nil, fmt.Errorf("call a tool worker: %w", streams.ErrClosed)
		case m := <-replies:
			if len(m.Data) == 0 {
				if m.Header.Get("Status") == "503" {
					e.refused++
					if e.worker == "" {
						return nil, errNoWorker
					}
				}
				continue // a worker that has lost its broker for a while comes back
			}
			r, err := e.decodeReply(m)
			if err != nil || r.Done {
				return r, err
			}
			e.heard, e.worker = time.Now(), r.Worker
			hold(m.Header.Get(waitsHeader) == "1")
		case <-again.C:
			if err := e.checkSilence(); err != nil {
				return nil, err
			}
		}
	}
}

// checkSilence sends the request again where the worker has been silent for a while, and fails where that was too long.
func (e *exchange) checkSilence() error {
	c := e.client
	if !c.stream.NATS().IsConnected() {
		e.heard = time.Now() // which is no worker's fault
		return nil
	}
	silent := time.Since(e.heard)
	if silent >= c.opts.Lost || e.worker == "" && silent >= c.opts.Again {
		lost := errLost
		if e.refused >= e.sent {
			lost = errUnreached
		}
		return fmt.Errorf("%w: %s said nothing for %s", lost, e.worker, silent.Round(time.Millisecond))
	}
	if silent >= c.opts.Again {
		return e.sendRequest()
	}
	return nil
}

// decodeReply decodes a reply and checks that it is well formed and of this request.
func (e *exchange) decodeReply(m *nats.Msg) (*schemas.ToolReply, error) {
	r := new(schemas.ToolReply)
	err := schemas.Unmarshal(m.Data, r)
	if err == nil {
		err = r.Validate()
	}
	if err == nil && (r.Session != e.req.Session && r.Session != unknownSession || r.Sequence != e.req.Sequence) {
		err = fmt.Errorf("it is of session %q, request %d", r.Session, r.Sequence)
	}
	if err == nil && e.worker != "" && r.Worker != e.worker {
		err = fmt.Errorf("it is of worker %s", r.Worker)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	return r, nil
}

// tellWorkers sends a request that needs no reply to every worker.
func (c *Client) tellWorkers(req *schemas.ToolRequest) {
	data, err := schemas.Marshal(req)
	if err == nil {
		err = c.stream.NATS().Publish(everySubject(c.stream.ToolsSubject()), data)
	}
	if err != nil { // the session expires
		c.stream.Log().Debug("tell the tool workers", "op", req.Op, "err", err)
	}
}
