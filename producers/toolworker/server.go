package toolworker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// server is a worker's side of the requests.
type server struct {
	cfg     Config
	stream  Stream
	tools   map[string][]producers.Tool
	most    map[string]int // sessions of a task
	metrics *Metrics
	in      chan *nats.Msg
	slots   chan struct{}
	ctx     context.Context //nolint:containedctx // of the sessions, until the worker has stopped
	stop    context.CancelFunc
	// empty is closed when the worker drains and no session is left.
	empty chan struct{}

	mu       sync.Mutex
	sessions map[string]*session // by name; replaced sessions are left out
	open     int                 // sessions that are not wholly ended
	openOf   map[string]int      // the same by task
	room     admission           // to the sandboxes that they may take
	waiting  int                 // requests that wait for a slot
	draining bool
}

func newServer(cfg Config, deps Deps) *server {
	s := &server{
		cfg: cfg, stream: deps.Stream, tools: deps.Tools, room: admission{sandboxes: deps.Sandboxes, places: deps.Places},
		metrics: deps.Metrics, in: make(chan *nats.Msg, maxReceived),
		slots: make(chan struct{}, cfg.Calls), empty: make(chan struct{}), sessions: map[string]*session{},
		most: deps.Most, openOf: map[string]int{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// receiveMessage takes a message.
func (s *server) receiveMessage(m *nats.Msg) {
	req := new(schemas.ToolRequest)
	err := schemas.Unmarshal(m.Data, req)
	if err == nil {
		err = req.Validate()
	}
	if err == nil && req.Run != s.stream.Name() {
		err = fmt.Errorf("%w: a request of run %q at a tool worker of run %q", schemas.ErrInvalid, req.Run, s.stream.Name())
	}
	switch {
	case err != nil:
		s.refuseRequest(m.Reply, req, "wrong", schemas.ToolRefused, err.Error())
	case req.Op == schemas.ToolOpEnd:
		s.endOthers(req)
	case m.Reply == "" && req.Op != schemas.ToolOpClose:
		s.refuseRequest("", req, "wrong", schemas.ToolRefused, "no subject for the reply")
	case req.Op == schemas.ToolOpOpen:
		s.beginSession(req, m.Reply)
	default:
		s.askSession(req, m.Reply)
	}
}

// beginSession opens a session, or answers for the session that this opening has.
func (s *server) beginSession(req *schemas.ToolRequest, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.sessions[req.Session]
	if before != nil && before.opening == req.Opening {
		before.takeRequest(req, reply)
		return
	}
	switch {
	case s.draining:
		s.refuseRequest(reply, req, "sessions", schemas.ToolBusy, fmt.Sprintf("tool worker %s is stopping", s.cfg.Name))
		return
	case s.open >= s.cfg.Sessions && before == nil:
		s.refuseRequest(reply, req, "sessions", schemas.ToolBusy, fmt.Sprintf("tool worker %s is full: it takes %d sessions", s.cfg.Name, s.cfg.Sessions))
		return
	case before == nil && s.most[req.Task] > 0 && s.openOf[req.Task] >= s.most[req.Task]:
		s.refuseRequest(reply, req, "sessions", schemas.ToolBusy,
			fmt.Sprintf("tool worker %s is full: its tools have room for %d sessions of task %s: "+
				"raise workers of tools.starlark, or start further workers", s.cfg.Name, s.most[req.Task], req.Task))
		return
	case before == nil && !s.room.admits(req.Session, req.Task, time.Now()):
		s.refuseRequest(reply, req, "sessions", schemas.ToolBusy,
			fmt.Sprintf("tool worker %s is full: a session takes %d of its %d sandboxes, and others may take %d: "+
				"raise sandbox.most, or start further workers", s.cfg.Name, s.room.places[req.Task], s.room.sandboxes, s.room.taken))
		return
	case s.tools[req.Task] == nil:
		s.refuseRequest(reply, req, "wrong", schemas.ToolRefused,
			fmt.Sprintf("tool worker %s serves no tools of task %q: give every role the same configuration", s.cfg.Name, req.Task))
		return
	}
	made := s.newSession(req)
	if before != nil {
		before.endSession("replaced")
		made.before = before.ended
	}
	s.sessions[req.Session] = made
	s.open++
	s.openOf[req.Task]++
	s.room.taken += s.room.places[req.Task]
	s.metrics.countOpened()
	made.takeRequest(req, reply)
}

// askSession puts a request to the session that it names.
func (s *server) askSession(req *schemas.ToolRequest, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[req.Session]
	switch {
	case (one == nil || one.opening != req.Opening) && req.Op == schemas.ToolOpClose:
		s.sendAnswer(reply, &schemas.ToolReply{Session: req.Session, Sequence: req.Sequence, Done: true, Outcome: schemas.ToolOK})
	case one == nil:
		s.refuseRequest(reply, req, "gone", schemas.ToolGone,
			fmt.Sprintf("tool worker %s has no session %q: it was idle for toolworker.idle, %s, or ended, or the worker is another", s.cfg.Name, req.Session, s.cfg.Idle))
	case one.opening != req.Opening:
		s.refuseRequest(reply, req, "gone", schemas.ToolGone, fmt.Sprintf("session %q was opened anew by another rollout of its ticket", req.Session))
	default:
		one.takeRequest(req, reply)
	}
}

// endOthers ends a session that has another opening than the request's.
func (s *server) endOthers(req *schemas.ToolRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.forget(req.Session) // another worker has it
	if one := s.sessions[req.Session]; one != nil && one.opening != req.Opening {
		one.endSession("replaced")
	}
}

// startDraining takes no new session from now on.
func (s *server) startDraining() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.noteEmpty()
}

// sessionLeft counts a session that is wholly ended. The lock is held.
func (s *server) sessionLeft(task string) {
	s.open--
	s.openOf[task]--
	s.room.taken -= s.room.places[task]
	s.noteEmpty()
}

// noteEmpty ends the drain when no session is left. The lock is held.
func (s *server) noteEmpty() {
	if s.draining && s.open == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

func (s *server) endAll(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		one.endSession(why)
	}
}

// watchSessions ends idle sessions and keeps callers waiting that would give up, until ctx ends; then every session ends.
func (s *server) watchSessions(ctx context.Context) {
	tick := time.NewTicker(min(keepAlive/2, max(s.cfg.Idle/4, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.endAll("drained")
			return
		case now := <-tick.C:
			s.mu.Lock()
			for _, one := range s.sessions {
				one.tickSession(now)
			}
			s.mu.Unlock()
		}
	}
}

// refuseRequest answers a request that is not carried out.
func (s *server) refuseRequest(reply string, req *schemas.ToolRequest, why string, outcome schemas.ToolOutcome, text string) {
	s.metrics.countRefused(why)
	r := &schemas.ToolReply{Session: req.Session, Sequence: max(req.Sequence, 0), Done: true, Outcome: outcome, Error: text}
	if r.Session == "" {
		r.Session = unknownSession
	}
	if outcome == schemas.ToolBusy {
		r.RetryAfter = s.cfg.RetryAfter
	}
	s.sendAnswer(reply, r)
}

// unknownSession is the session of a refusal whose request could not be read.
const unknownSession = "?"

// sendAnswer sends a reply and returns the bytes sent.
func (s *server) sendAnswer(to string, r *schemas.ToolReply) []byte {
	r.Worker = s.cfg.Name
	data, err := schemas.Marshal(r)
	if limit := s.stream.NATS().MaxPayload(); err == nil && limit > 0 && int64(len(data)) > limit {
		r.Observation, r.Result, r.Data = nil, nil, nil
		r.Outcome = schemas.ToolFailed
		r.Error = fmt.Sprintf("what came of it has %d bytes, and the broker takes messages of %d: bound the tool's output, or raise the broker's max_payload", len(data), limit)
		data, err = schemas.Marshal(r)
	}
	if err != nil {
		s.stream.Log().Error("write a tool reply", "session", r.Session, "err", err)
		return nil
	}
	s.sendReply(to, data, r.Done)
	return data
}

// waitsHeader is the header, "1", of a reply to a request that waits for its turn behind others. It is no field of the reply: callers of a
// build before this one refuse fields that they do not know, and pass headers over.
const waitsHeader = "Weir-Waits"

// sendProgress sends a reply that is not Done; waits is whether the request waits for its turn.
func (s *server) sendProgress(to string, r *schemas.ToolReply, waits bool) {
	r.Worker = s.cfg.Name
	data, err := schemas.Marshal(r)
	if err != nil || to == "" {
		return // it has names and a number alone
	}
	m := &nats.Msg{Subject: to, Data: data}
	if waits {
		m.Header = nats.Header{waitsHeader: {"1"}}
	}
	if err := s.stream.NATS().PublishMsg(m); err != nil {
		s.stream.Log().Debug("send a sign of life; its caller asks again", "err", err)
	}
}

// sendReply sends a written reply.
func (s *server) sendReply(to string, data []byte, last bool) {
	if to == "" || data == nil {
		return
	}
	if err := s.stream.NATS().Publish(to, data); err != nil {
		s.stream.Log().Debug("send a tool reply; its caller asks again", "err", err)
		return
	}
	if last && strings.HasPrefix(to, streams.ReplyPrefix) {
		// An empty message lets the broker forget the request now; else it forgets the request later.
		_ = s.stream.NATS().Publish(to, nil)
	}
}
