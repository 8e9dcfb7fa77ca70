package producers

import (
	"context"
	"sync"
)

// Claims keep two episodes of a ticket apart whose tools are the same: the sessions of both would have one name. Producers that share their
// environments share their Claims. The zero value has none. It is safe for concurrent use.
type Claims struct {
	// ids has, for each episode that is not yet closed, a channel that closes when it is.
	ids sync.Map
}

// Claim waits until an earlier episode of the ticket is closed, or ctx ends. The returned function closes this episode.
func (c *Claims) Claim(ctx context.Context, ticket string) (closed func(), err error) {
	for {
		closed, earlier := c.tryClaim(ticket)
		if closed != nil {
			return closed, nil
		}
		select {
		case <-earlier:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// TryClaim is Claim without waiting: nil where an earlier episode of the ticket is not closed.
func (c *Claims) TryClaim(ticket string) (closed func()) {
	closed, _ = c.tryClaim(ticket)
	return closed
}

// tryClaim returns the end of the claim, or what closes when the earlier claim ends.
func (c *Claims) tryClaim(ticket string) (closed func(), earlier <-chan struct{}) {
	mine := make(chan struct{})
	if other, loaded := c.ids.LoadOrStore(ticket, mine); loaded {
		return nil, other.(chan struct{})
	}
	return func() {
		c.ids.Delete(ticket)
		close(mine)
	}, nil
}
