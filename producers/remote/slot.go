package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/weir-rl/weir/producers"
)

// Slot is one of the calls that a client makes at once. Its holder keeps it from call to call, until Leave, and makes one call at a time.
type Slot struct {
	client *Client
	left   sync.Once
}

// TakeSlot waits until the client makes fewer calls at once than it may. The time of ctx's call and episode stands still meanwhile.
func (c *Client) TakeSlot(ctx context.Context) (*Slot, error) {
	select {
	case c.slots <- struct{}{}:
		return &Slot{client: c}, nil
	default:
	}
	defer producers.HoldCall(ctx, fmt.Sprintf("one of %d calls of %s to end (concurrency)", c.cfg.Concurrency, c))()
	select {
	case c.slots <- struct{}{}:
		return &Slot{client: c}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waited for one of %d calls to end: %w", c.cfg.Concurrency, context.Cause(ctx))
	}
}

// Leave gives the slot back. A second Leave does nothing.
func (s *Slot) Leave() { s.left.Do(func() { <-s.client.slots }) }

// Post is [Client.Post] in this slot.
func (s *Slot) Post(ctx context.Context, key string, body any, decode func([]byte) error) error {
	return s.client.post(ctx, s, key, body, decode)
}

func (c *Client) post(ctx context.Context, slot *Slot, key string, body any, decode func([]byte) error) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write the request to %s: %w", c, err)
	}
	return c.callService(ctx, slot, c.cfg.Retries, request{http.MethodPost, c.url.String(), key, data}, decode)
}
