package toolworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// maxUnanswered bounds the replies that are kept for a caller who does not say that they came.
const maxUnanswered = 1024

// session is one opening of an episode's. The server's lock guards it, but for what its own requests set while they are carried out.
type session struct {
	server  *server
	name    string
	opening string
	task    string
	tools   map[string]producers.Tool
	ctx     context.Context //nolint:containedctx // of the session's calls, until it ends
	cancel  context.CancelCauseFunc
	// before is closed when the opening that this one replaces has ended; nil where there is none.
	before <-chan struct{}
	// ended is closed when nothing of the session is left.
	ended chan struct{}

	requests map[int]*request
	answered int // the replies to requests below are not kept
	busy     int
	last     time.Time // when it was last asked for something, or had answered
	ready    bool      // its tools are open
	over     bool
	working  sync.WaitGroup
	// opened are the tools that keep something for it; its opening sets them.
	opened []producers.SessionTool
}

// request is one that is carried out, or was.
type request struct {
	*schemas.ToolRequest
	reply  string // where its caller last asked for it
	sent   time.Time
	answer []byte // nil before it is done
}

// errEnded is the cause of a session's context when it has ended.
var errEnded = errors.New("the session has ended")

// newSession is a session that is not open yet. The server's lock is held.
func (s *server) newSession(req *schemas.ToolRequest) *session {
	one := &session{
		server: s, name: req.Session, opening: req.Opening, task: req.Task, tools: map[string]producers.Tool{},
		ended: make(chan struct{}), requests: map[int]*request{}, last: time.Now(),
	}
	one.ctx, one.cancel = context.WithCancelCause(s.ctx)
	for _, tool := range s.tools[req.Task] {
		one.tools[tool.Spec().Name] = tool
	}
	return one
}

// take carries out a request, unless it was before: its reply is then sent again. The server's lock is held.
//
// Invariant: a request of a session is carried out once, however often it comes.
func (one *session) take(req *schemas.ToolRequest, reply string) {
	s := one.server
	one.last = time.Now()
	if known := one.requests[req.Sequence]; known != nil {
		s.metrics.again()
		known.reply = reply
		if known.answer != nil {
			s.send(reply, known.answer, true)
		}
		return
	}
	for one.answered < req.Answered {
		delete(one.requests, one.answered)
		one.answered++
	}
	switch {
	case req.Sequence < one.answered:
		s.refuse(reply, req, "wrong", schemas.ToolRefused, fmt.Sprintf("request %d was answered, and its reply was said to have come", req.Sequence))
		return
	case one.over:
		s.refuse(reply, req, "gone", schemas.ToolGone, errEnded.Error())
		return
	case !one.ready && req.Op != schemas.ToolOpOpen && req.Op != schemas.ToolOpClose:
		s.refuse(reply, req, "wrong", schemas.ToolRefused, "the session is not open yet")
		return
	case len(one.requests) >= maxUnanswered, s.waiting >= s.cfg.Queue && req.Op != schemas.ToolOpClose && s.full():
		s.refuse(reply, req, "queue", schemas.ToolBusy, fmt.Sprintf("%d calls wait at tool worker %s: toolworker.queue is %d", s.waiting, s.cfg.Name, s.cfg.Queue))
		if req.Op == schemas.ToolOpOpen {
			one.end("failed")
		}
		return
	}
	r := &request{ToolRequest: req, reply: reply, sent: time.Now()}
	one.requests[req.Sequence] = r
	if req.Op == schemas.ToolOpClose {
		one.end("closed")
		go func() {
			<-one.ended
			one.settle(r, &schemas.ToolReply{Outcome: schemas.ToolOK})
		}()
		return
	}
	one.busy++
	s.waiting++
	s.metrics.wait(1)
	one.working.Add(1)
	go one.work(r)
}

// full says whether a request would have to wait.
func (s *server) full() bool { return len(s.slots) == cap(s.slots) || s.waiting > 0 }

// work carries a request out when there is room.
func (one *session) work(r *request) {
	defer one.working.Done()
	s := one.server
	var reply *schemas.ToolReply
	select {
	case s.slots <- struct{}{}:
		one.waited()
		reply = one.carryOut(r)
		<-s.slots
	case <-one.ctx.Done():
		one.waited()
		reply = failure(context.Cause(one.ctx))
	}
	if r.Op == schemas.ToolOpOpen && reply.Outcome == schemas.ToolOK {
		s.mu.Lock()
		one.ready = true // before its caller hears of it
		s.mu.Unlock()
	}
	one.settle(r, reply)
	s.mu.Lock()
	defer s.mu.Unlock()
	one.busy--
	one.last = time.Now()
	if r.Op == schemas.ToolOpOpen && reply.Outcome != schemas.ToolOK {
		one.end("failed")
	}
}

func (one *session) waited() {
	s := one.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	s.metrics.wait(-1)
}

// settle keeps and sends the reply to a request.
func (one *session) settle(r *request, reply *schemas.ToolReply) {
	s := one.server
	reply.Session, reply.Sequence, reply.Done = one.name, r.Sequence, true
	if one.ctx.Err() != nil && reply.Outcome != schemas.ToolOK {
		*reply = schemas.ToolReply{Session: one.name, Sequence: r.Sequence, Done: true, Outcome: schemas.ToolGone, Error: context.Cause(one.ctx).Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.answer = s.answer(r.reply, reply)
}

// tick tells callers whose requests wait that they do, and ends the session where nobody has asked for long. The server's lock is held.
func (one *session) tick(now time.Time) {
	s := one.server
	for _, r := range one.requests {
		if r.answer == nil && now.Sub(r.sent) >= keepAlive {
			r.sent = now
			s.answer(r.reply, &schemas.ToolReply{Session: one.name, Sequence: r.Sequence})
		}
	}
	idle := s.cfg.Idle
	if s.draining { // most of those that were silent for so long are a dead producer's, who will not close them
		idle = min(idle, s.cfg.Grace)
	}
	if one.busy == 0 && !one.over && now.Sub(one.last) > idle {
		s.stream.Log().Info("a session was idle and is closed", "session", one.name, "idle", idle)
		one.end("expired")
	}
}

// end lets the session's calls end and closes what its tools keep, in a goroutine. The server's lock is held.
func (one *session) end(why string) {
	if one.over {
		return
	}
	one.over = true
	one.cancel(fmt.Errorf("%w: %s", errEnded, why))
	go func() {
		if one.before != nil {
			<-one.before
		}
		one.working.Wait()
		one.close()
		s := one.server
		s.mu.Lock()
		defer s.mu.Unlock()
		s.metrics.over(why)
		if s.sessions[one.name] == one {
			delete(s.sessions, one.name)
		}
		close(one.ended)
		s.left(1)
	}()
}

// close closes what tools keep for the session, within [producers.CloseLimit].
func (one *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), producers.CloseLimit)
	defer cancel()
	var closing sync.WaitGroup
	for _, tool := range one.opened {
		closing.Go(func() {
			closed := make(chan error, 1)
			go func() { closed <- producers.Guard(func() error { return tool.Close(ctx, one.name) }) }()
			var err error
			select {
			case err = <-closed:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
			if err != nil {
				one.server.stream.Log().Warn("a tool did not close a session", "tool", tool.Spec().Name, "session", one.name, "err", err)
			}
		})
	}
	closing.Wait()
}
