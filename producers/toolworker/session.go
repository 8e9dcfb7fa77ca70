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

// maxUnanswered bounds the replies that are kept for a caller that does not confirm them.
const maxUnanswered = 1024

// session is an opening of an episode's session. The server's lock guards it, except the fields that its own requests set while
// they are carried out.
type session struct {
	server  *server
	name    string
	opening string
	task    string
	tools   map[string]producers.Tool
	ctx     context.Context //nolint:containedctx // of the session's calls, until it ends
	cancel  context.CancelCauseFunc
	// before is closed when the opening that this opening replaces has ended; nil where it replaces none.
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

// request is a request that is carried out, or was.
type request struct {
	*schemas.ToolRequest
	reply  string // where its caller last asked for it
	sent   time.Time
	answer []byte // nil before it is done
	waits  int    // the waits of the request, or of its call, for a turn
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

// takeRequest carries out a request, unless it was before: its reply is then sent again. The server's lock is held.
//
// Invariant: a request of a session is carried out once, however often it comes.
func (one *session) takeRequest(req *schemas.ToolRequest, reply string) {
	s := one.server
	one.last = time.Now()
	if known := one.requests[req.Sequence]; known != nil {
		s.metrics.countRepeat()
		known.reply = reply
		if known.answer != nil {
			s.sendReply(reply, known.answer, true)
		}
		return
	}
	for one.answered < req.Answered {
		delete(one.requests, one.answered)
		one.answered++
	}
	switch {
	case req.Sequence < one.answered:
		s.refuseRequest(reply, req, "wrong", schemas.ToolRefused, fmt.Sprintf("request %d was answered, and its reply was said to have come", req.Sequence))
		return
	case one.over:
		s.refuseRequest(reply, req, "gone", schemas.ToolGone, errEnded.Error())
		return
	case !one.ready && req.Op != schemas.ToolOpOpen && req.Op != schemas.ToolOpClose:
		s.refuseRequest(reply, req, "wrong", schemas.ToolRefused, "the session is not open yet")
		return
	case len(one.requests) >= maxUnanswered, s.waiting >= s.cfg.Queue && req.Op != schemas.ToolOpClose && s.full():
		s.refuseRequest(reply, req, "queue", schemas.ToolBusy, fmt.Sprintf("%d calls wait at tool worker %s: toolworker.queue is %d", s.waiting, s.cfg.Name, s.cfg.Queue))
		if req.Op == schemas.ToolOpOpen {
			one.endSession("failed")
		}
		return
	}
	r := &request{ToolRequest: req, reply: reply, sent: time.Now()}
	one.requests[req.Sequence] = r
	if req.Op == schemas.ToolOpClose {
		one.endSession("closed")
		go func() {
			<-one.ended
			one.settleRequest(r, &schemas.ToolReply{Outcome: schemas.ToolOK})
		}()
		return
	}
	one.busy++
	s.waiting++
	s.metrics.addWaiting(1)
	one.working.Add(1)
	go one.carryOutWhenRoom(r)
}

// full reports whether a request would have to wait.
func (s *server) full() bool { return len(s.slots) == cap(s.slots) || s.waiting > 0 }

// carryOutWhenRoom carries a request out when there is room.
func (one *session) carryOutWhenRoom(r *request) {
	defer one.working.Done()
	s := one.server
	var reply *schemas.ToolReply
	err := one.awaitRoom(r)
	one.endWaiting()
	if err == nil {
		reply = one.carryOut(r)
		<-s.slots
	} else {
		reply = failureReply(err)
	}
	if r.Op == schemas.ToolOpOpen && reply.Outcome == schemas.ToolOK {
		s.mu.Lock()
		one.ready = true // before its caller hears of it
		s.mu.Unlock()
	}
	one.settleRequest(r, reply)
	s.mu.Lock()
	defer s.mu.Unlock()
	one.busy--
	one.last = time.Now()
	if r.Op == schemas.ToolOpOpen && reply.Outcome != schemas.ToolOK {
		one.endSession("failed")
	}
}

// awaitRoom waits until fewer requests are carried out than may be.
func (one *session) awaitRoom(r *request) error {
	select {
	case one.server.slots <- struct{}{}:
		return nil
	default:
	}
	defer one.holdCaller(r)()
	select {
	case one.server.slots <- struct{}{}:
		return nil
	case <-one.ctx.Done():
		return context.Cause(one.ctx)
	}
}

// holdCaller tells the caller of a request that it waits for its turn, and, by goOn, that it does so no more.
func (one *session) holdCaller(r *request) (goOn func()) {
	one.countWait(r, 1)
	return func() { one.countWait(r, -1) }
}

// countWait counts a wait of a request that begins, or ends, and tells the caller whether there is any.
func (one *session) countWait(r *request, by int) {
	s := one.server
	s.mu.Lock()
	defer s.mu.Unlock()
	before := r.waits > 0
	if r.waits += by; r.answer == nil && before != (r.waits > 0) {
		one.tellProgress(r, time.Now())
	}
}

// tellProgress tells the caller that its request has no answer yet. The server's lock is held.
func (one *session) tellProgress(r *request, now time.Time) {
	r.sent = now
	one.server.sendProgress(r.reply, &schemas.ToolReply{Session: one.name, Sequence: r.Sequence}, r.waits > 0)
}

func (one *session) endWaiting() {
	s := one.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	s.metrics.addWaiting(-1)
}

// settleRequest keeps and sends the reply to a request.
func (one *session) settleRequest(r *request, reply *schemas.ToolReply) {
	s := one.server
	reply.Session, reply.Sequence, reply.Done = one.name, r.Sequence, true
	if one.ctx.Err() != nil && reply.Outcome != schemas.ToolOK {
		*reply = schemas.ToolReply{Session: one.name, Sequence: r.Sequence, Done: true, Outcome: schemas.ToolGone, Error: context.Cause(one.ctx).Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.answer = s.sendAnswer(r.reply, reply)
}

// tickSession sends callers of waiting requests a sign of life, and ends the session after a long silence of its caller. The
// server's lock is held.
func (one *session) tickSession(now time.Time) {
	s := one.server
	for _, r := range one.requests {
		if r.answer == nil && now.Sub(r.sent) >= keepAlive {
			one.tellProgress(r, now)
		}
	}
	idle := s.cfg.Idle
	if s.draining { // most sessions that were silent for so long are a dead producer's, which will not close them
		idle = min(idle, s.cfg.Grace)
	}
	if one.busy == 0 && !one.over && now.Sub(one.last) > idle {
		s.stream.Log().Info("a session was idle and is closed", "session", one.name, "idle", idle)
		one.endSession("expired")
	}
}

// endSession lets the session's calls end and closes what its tools keep, in a goroutine. The server's lock is held.
func (one *session) endSession(why string) {
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
		one.closeTools()
		s := one.server
		s.mu.Lock()
		defer s.mu.Unlock()
		s.metrics.countEnded(why)
		if s.sessions[one.name] == one {
			delete(s.sessions, one.name)
		}
		close(one.ended)
		s.sessionLeft(one.task)
	}()
}

// closeTools closes what tools keep for the session, within [producers.CloseLimit].
func (one *session) closeTools() {
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
