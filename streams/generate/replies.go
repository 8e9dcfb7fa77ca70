package generate

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/streams"
)

// openReplies starts to listen for the chunks of an attempt. reply is the subject that they come to.
func (c *Client) openReplies() (r *replies, reply string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, "", fmt.Errorf("generate call: %w", streams.ErrClosed)
	}
	if c.sub == nil {
		sub, err := c.run.NATS().Subscribe(c.prefix+"*", c.receiveChunk)
		if err != nil {
			return nil, "", fmt.Errorf("subscribe to replies: %w", err)
		}
		c.sub = sub
	}
	token := strconv.FormatUint(c.next, 36)
	c.next++
	r = &replies{ready: make(chan struct{}, 1)}
	c.calls[token] = r
	return r, c.prefix + token, nil
}

func (c *Client) receiveChunk(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, c.prefix)
	c.mu.Lock()
	r := c.calls[token]
	c.mu.Unlock()
	if r != nil {
		r.putMessage(m)
	}
}

// closeReplies ends what openReplies began.
func (c *Client) closeReplies(reply string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, strings.TrimPrefix(reply, c.prefix))
}

// replies queues the chunks of an attempt. It never makes the connection's reader wait; the number of tokens asked for bounds its
// length.
type replies struct {
	ready chan struct{}
	mu    sync.Mutex
	in    []*nats.Msg
	out   []*nats.Msg
}

func (r *replies) putMessage(m *nats.Msg) {
	r.mu.Lock()
	r.in = append(r.in, m)
	r.mu.Unlock()
	r.wakeReader()
}

func (r *replies) wakeReader() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// takeMessages are the messages since the last call; they are good until the next call.
func (r *replies) takeMessages() []*nats.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in, r.out = r.out[:0], r.in
	return r.out
}
