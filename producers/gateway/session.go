package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Recorder is the part of an episode that a [Session] writes.
type Recorder interface {
	// Open begins a context of the episode.
	Open(tokens []int32) (Context, error)
}

// Context is a context of an episode.
type Context interface {
	Begin(tokens []int32) error
	Observe(tokens []int32) error
	Generate(ctx context.Context, options producers.GenerateOptions) ([]int32, schemas.GenerateStop, error)
	Tokens() []int32
}

// Session is an episode while an agent outside asks the policy. It is used by many goroutines at once.
//
// Invariant: each reply that an agent got was sampled once and is recorded once, however often the agent asked for it.
//
// Invariant: clients that each ask for the first time get a reply each.
type Session struct {
	secret   string
	episode  string // "" where the agent ends with its producer
	speaker  Speaker
	recorder Recorder
	// most bounds the replies.
	most int
	// alive ends with the episode, and with it every call of the policy.
	alive context.Context //nolint:containedctx // the session lives as long as it
	// given is the episode's own, of which alive is a child: it ends by the episode's time, or where its producer stops.
	given context.Context //nolint:containedctx // as alive
	end   context.CancelCauseFunc
	late  *lateRequests
	// lasting is nil where the agent ends with its producer.
	lasting *lasting
	// large has a value for each large request that is under way: see largeBody.
	large chan struct{}

	mu      sync.Mutex
	threads []*thread
	asked   map[[sha256.Size]byte][]*asking
	// stored has requests with the reply at the end of their messages, by the reply's id: for requests that name the id and not the messages.
	stored  map[string]*request
	givenUp []givenUp // the newest requests whose clients left, the oldest first
	// withdrawn has the requests whose last client left, and which sample still.
	withdrawn map[*asking]struct{}
	replies   int
	stop      schemas.StopReason // the limit that refused the last request; "" is none
	refused   int                // requests in a row that a limit refused
	// refusals counts the requests that a limit refused, in all.
	refusals int
	failed   error // the machinery's error
	outcome  Outcome
	posted   bool
	ended    chan struct{} // closed when the outcome is there
	touched  time.Time     // when the last request came or went
	offered  bool          // no agent has come for the episode yet
	running  int
}

// thread is a context of the episode, and the conversation in it.
type thread struct {
	context Context
	talk    Talk
	tools   []chat.Tool
	// messages are the agent's, with the policy's last reply at their end as the agent got it. While awaiting they are the messages that
	// the context holds, and the reply to them is still to be sampled: the agent left before it was.
	messages []chat.Message
	awaiting bool
	// begun are the ids that the last reply begins with and that were not sampled: see request.mustCall. sampled is the last reply, with them.
	begun, sampled []int32
	busy           bool
	place          int // among the session's
}

// Outcome is how an agent says that its episode ended.
type Outcome struct {
	// Answer is the agent's; "" is none.
	Answer string
	// Reward is the agent's own reward; nil leaves it to the task's reward.
	Reward *float64
	// Rewards are its components by name; nil is none.
	Rewards map[string]float64
}

var (
	errOver   = errors.New("the episode is over")
	errBounds = errors.New("the agent has asked for as many replies as the episode allows")
)

func newSession(ctx context.Context, s Speaker, r Recorder, most int) *Session {
	secret := make([]byte, 20)
	_, _ = rand.Read(secret) // never fails
	alive, end := context.WithCancelCause(ctx)
	return &Session{
		secret: hex.EncodeToString(secret), speaker: s, recorder: r, most: most, alive: alive, given: ctx, end: end, late: newLateRequests(r),
		asked: map[[sha256.Size]byte][]*asking{}, stored: map[string]*request{},
		withdrawn: map[*asking]struct{}{}, ended: make(chan struct{}), touched: time.Now(),
		large: make(chan struct{}, mostLargeOfSession),
	}
}

// matchThread returns the idle context whose messages are the longest beginning of a request's, which is then busy; nil where a new context
// is needed. The caller holds the lock.
func (s *Session) matchThread(r *request) *thread {
	var best *thread
	for _, t := range s.threads {
		goesOn := t.awaiting == (len(r.messages) == len(t.messages)) && (!t.awaiting || r.mustCall == (len(t.begun) > 0))
		if t.busy || !goesOn || best != nil && len(t.messages) <= len(best.messages) {
			continue
		}
		if t.begins(r) {
			best = t
		}
	}
	if best != nil {
		best.busy = true
	}
	return best
}

// begins reports whether the messages of the context are the beginning of a request's, or all of them. The caller holds the lock.
func (t *thread) begins(r *request) bool {
	return len(t.messages) <= len(r.messages) && sameTools(t.tools, r.tools) && haveBeginning(r.messages, t.messages)
}

// noteActivity notes that the agent is there. The caller holds the lock.
func (s *Session) noteActivity() { s.touched = time.Now() }

// settleRequest keeps the outcome of a request and wakes the clients that wait for it.
func (s *Session) settleRequest(t *thread, r *request, a *asking, got *reply, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(a.done)
	delete(s.withdrawn, a)
	s.running--
	a.reply, a.err = got, err
	if t != nil {
		t.busy = false
	}
	if err == nil {
		if a.refusals == s.refusals { // the agent went on within the limit
			s.stop, s.refused = "", 0
		}
		s.stored[got.id] = &request{messages: t.messages, tools: t.tools, instructions: r.instructions}
		return
	}
	if s.replies--; errors.Is(err, context.Canceled) {
		s.noteGivenUp(r.requestKey(), a)
		return
	}
	s.forgetAsking(r.requestKey(), a)
	if stopped, ok := errors.AsType[*producers.StoppedError](err); ok {
		s.noteLimit(stopped.Reason)
		a.err = openai.Refusal(http.StatusBadRequest, "invalid_request_error", "context_length_exceeded",
			"the episode has no room for this context: %v; trainer.limits.max_tokens bounds a context, and "+
				"trainer.limits.max_total_tokens the episode", err)
		return
	}
	if _, refused := errors.AsType[*openai.Error](err); !refused {
		if !errors.Is(err, errOver) { // a request that was open when the session was closed is no failure of the policy
			s.failed = err
		}
		a.err = openai.Refusal(http.StatusServiceUnavailable, "server_error", "unavailable", "%v", err)
		s.end(err)
	}
}

// A limit refuses so many requests in a row until the episode ends by that limit: the agent does not stop by itself. A request that is too
// long may be made shorter, a message at a time; no request has a turn more.
const (
	mostTurnRefusals  = 16
	mostTokenRefusals = 256
)

// noteLimit notes that a limit refused a request. The caller holds the lock.
func (s *Session) noteLimit(limit schemas.StopReason) {
	s.stop = limit
	s.refusals++
	s.refused++
	if s.lasting != nil {
		s.lasting.keeper.Note(encodeNote(note{Limit: limit}))
	}
	s.endWhereRefused()
}

// endWhereRefused ends the episode where a limit has refused too many requests in a row. The caller holds the lock.
func (s *Session) endWhereRefused() {
	most := mostTurnRefusals
	if s.stop == schemas.StopTokens {
		most = mostTokenRefusals
	}
	if s.refused >= most && !s.posted {
		s.posted = true
		close(s.ended)
	}
}

// continueThread has the policy continue a context, or open a new context.
func (s *Session) continueThread(ctx context.Context, t *thread, r *request) (*thread, *reply, error) {
	t, err := s.writeRequest(t, r)
	r.body.release()
	if err != nil {
		return t, nil, err
	}
	got, err := s.sampleReply(ctx, t, r)
	if err == nil {
		err = s.storeAnswer(r, got, t.sampled)
	}
	return t, got, err
}

// sampleReply has the policy reply to the request that its context holds.
func (s *Session) sampleReply(ctx context.Context, t *thread, r *request) (*reply, error) {
	prompt := len(t.context.Tokens())
	sampled, why, err := t.context.Generate(ctx, producers.GenerateOptions{Stop: s.speaker.Stop(), StopTexts: r.stop, MaxTokens: r.maxTokens})
	if err != nil {
		return nil, err
	}
	turn := slices.Concat(t.begun, sampled)
	got := s.parseReply(r, turn, why)
	got.promptTokens, got.sampled = prompt, len(sampled)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.sampled, t.awaiting = turn, false
	t.messages = append(shareMessages(r.messages, t.messages), got.asMessage())
	return got, nil
}

// writeRequest writes a request into its context, or into a new context: a request that comes after the agent left does not write it again.
func (s *Session) writeRequest(t *thread, r *request) (*thread, error) {
	l := s.lasting
	if l == nil {
		return s.putRequest(t, r)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	before := 0
	if t != nil {
		before = len(t.messages)
	}
	t, err := s.putRequest(t, r)
	if err == nil && !l.isRestoring() {
		s.noteAsk(t, r, before)
	}
	return t, err
}

// putRequest is writeRequest, which is not noted.
func (s *Session) putRequest(t *thread, r *request) (*thread, error) {
	begun, err := s.beginReply(r)
	if err != nil {
		return t, err
	}
	if t == nil {
		talk, ids, err := s.speaker.Begin(r.messages, r.tools)
		if err != nil {
			return nil, cannotWrite(err)
		}
		opened, err := s.recorder.Open(slices.Concat(ids, begun))
		if err != nil {
			return nil, fmt.Errorf("open a context: %w", err)
		}
		t = &thread{context: opened, talk: talk, tools: r.tools, messages: r.messages, awaiting: true, begun: begun, busy: true}
		s.mu.Lock()
		defer s.mu.Unlock()
		t.place = len(s.threads)
		s.threads = append(s.threads, t)
		return t, nil
	}
	if t.awaiting {
		return t, nil
	}
	talk := cloneTalk(t.talk)
	ids, fresh, err := talk.Next(t.sampled, r.messages[len(t.messages):]...)
	if err != nil {
		return t, cannotWrite(err)
	}
	put := t.context.Observe
	if fresh {
		put = t.context.Begin
	}
	if err := put(slices.Concat(ids, begun)); err != nil {
		return t, err // the conversation stays as it was: the agent may go on with less
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.talk, t.messages, t.awaiting, t.begun = talk, shareMessages(r.messages, t.messages), true, begun
	return t, nil
}

// beginReply returns the ids that a request has the reply begin with, none where all of the reply is sampled.
func (s *Session) beginReply(r *request) ([]int32, error) {
	if !r.mustCall {
		return nil, nil
	}
	ids, err := s.speaker.BeginCall()
	if err != nil {
		return nil, openai.BadRequest("unsupported_parameter",
			"tool_choice wants a call, and nothing holds the policy to it: %v; use auto or none", err)
	}
	return ids, nil
}

func cannotWrite(err error) error {
	return openai.BadRequest("invalid_parameter", "messages: the model's chat template cannot write them: %v", err)
}

// parseReply makes a reply of the sampled tokens. Where the request offers no tools, or a seeming call is none, all of the turn but its
// thoughts is text: an agent that reads calls out of the text finds them there, and an agent whose call cannot be read sees why.
func (s *Session) parseReply(r *request, sampled []int32, why schemas.GenerateStop) *reply {
	id := make([]byte, 12)
	_, _ = rand.Read(id) // never fails
	got := &reply{id: hex.EncodeToString(id), created: time.Now().Unix(), finish: finishStop}
	said, _ := s.speaker.Read(sampled, r.tools)
	got.reasoning, got.content = said.Reasoning, said.Content
	if why == schemas.GenerateLength {
		got.finish = finishLength
	}
	if len(r.tools) == 0 || said.Fault != "" || got.finish == finishLength {
		got.content, said.Calls = said.Said, nil
	}
	got.cutAtStop(r.stop)
	for i, call := range said.Calls {
		if i > 0 && r.single {
			break // the context holds the sampled tokens, the client is told of a single call
		}
		call.ID = callID(got.id, i)
		got.calls, got.finish = append(got.calls, call), finishCalls
	}
	return got
}

// earlierRequest returns the request of a reply of the session, with the reply at the end of its messages. The caller must not change it.
func (s *Session) earlierRequest(id string) (*request, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.stored[id]
	return r, ok
}
