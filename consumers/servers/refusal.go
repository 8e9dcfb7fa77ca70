package servers

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/schemas"
)

var (
	// errRefused is a request that the server holds to be wrong.
	errRefused = errors.New("the server refuses the call")
	// errNoOther is a call that one server refuses, where no other server serves.
	errNoOther = errors.New("no other server serves it")
)

// refusal is a server's answer that a call is wrong. The fault may be the server's: the call is tried at another server. If that server
// samples, the refusal is a doubt about the first. If it refuses too, the call is at fault, and neither server is doubted.
type refusal struct {
	server *server
	epoch  *epoch
	err    error
}

// refuser is the server that refused; nil for no refusal.
func (r *refusal) refuser() *server {
	if r == nil {
		return nil
	}
	return r.server
}

// chunk ends the call as refused for good.
func (r *refusal) chunk() *schemas.GenerateChunk {
	return refusalChunk(fmt.Sprintf("%v: %s: %v", consumers.ErrBadRequest, r.server.name, r.err), false)
}

// noteRefusal notes that the server of a lease refuses the call: the chunk is empty where another server is to judge that, and ends the
// call where another server has refused it before.
func (c *call) noteRefusal(l *lease, err error) *schemas.GenerateChunk {
	last := &refusal{l.server, l.epoch, err}
	if c.refusal != nil {
		return last.chunk()
	}
	c.refusal = last
	c.pool.metrics.Failed.Inc()
	c.pool.log.Debug("a server refuses a call", "server", l.server.name, "episode", c.req.Episode, "err", err)
	return &schemas.GenerateChunk{}
}

// refuseAlone ends a call that one server refuses, where no other server can judge that. The server is doubted; its keeper judges it by a
// call of its own.
func (c *call) refuseAlone() *schemas.GenerateChunk {
	c.pool.judgeServer(c.refusal.server, c.refusal.epoch, fmt.Errorf("%w: %w", errNoOther, c.refusal.err))
	return c.refusal.chunk()
}

// clearRefusals reports whether the last doubt about a server is a call that it alone refused, and the server samples a call of its keeper:
// then the calls were at fault, and the doubts are over.
func (s *server) clearRefusals(ctx context.Context, doubt error, label string) bool {
	if !errors.Is(doubt, errNoOther) || s.seeSample(ctx, label) != nil {
		return false
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.state.doubts = 0
	return true
}

// blameRefuser makes a refusal a doubt about its server.
func (c *call) blameRefuser() {
	if r := c.refusal; r != nil {
		c.refusal = nil
		c.pool.judgeServer(r.server, r.epoch, r.err)
	}
}

// servesElsewhere reports whether a server but avoid has a call's version, though it may be full or standing still. The caller holds mu.
func (p *Pool) servesElsewhere(avoid *server, minVersion int64) bool {
	for _, s := range p.servers {
		if s != avoid && s.state.fit && s.state.epoch.version >= minVersion {
			return true
		}
	}
	return false
}
