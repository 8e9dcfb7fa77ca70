package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// note is a note in an episode's journal; a single field is set.
type note struct {
	// Claim: an agent was given the episode, under the key of this name.
	Claim   string   `json:"claim,omitempty"`
	Ask     *ask     `json:"ask,omitempty"`
	Answer  *told    `json:"answer,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	// Limit refused a request.
	Limit schemas.StopReason `json:"limit,omitempty"`
}

// ask is a request that was written into a context.
type ask struct {
	Number int `json:"n"`
	// Thread is the place of its context among the session's, Messages are new to the context.
	Thread       int       `json:"thread"`
	Messages     []message `json:"messages,omitempty"`
	Tools        []tool    `json:"tools,omitempty"`
	MaxTokens    int       `json:"max_tokens,omitempty"`
	Stop         []string  `json:"stop,omitempty"`
	Single       bool      `json:"single,omitempty"`
	MustCall     bool      `json:"must_call,omitempty"`
	Instructions int       `json:"instructions,omitempty"`
	Key          string    `json:"key"` // as requestKey
}

// told is the answer to a request.
type told struct {
	Number  int    `json:"n"`
	ID      string `json:"id"`
	Created int64  `json:"created"`
	Sum     string `json:"sum"` // of its tokens
}

// message is a chat message, whose calls' arguments stay as they were written.
type message struct {
	Role      string `json:"role"`
	Content   string `json:"content,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	Calls     []call `json:"calls,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Name      string `json:"name,omitempty"`
}

type call struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Parameters  string `json:"parameters,omitempty"`
}

func encodeNote(n note) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(n) // texts and numbers; an outcome's numbers are finite
	return bytes.TrimSpace(b.Bytes())
}

func noteMessages(messages []chat.Message) (out []message) {
	for _, m := range messages {
		w := message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, CallID: m.CallID, Name: m.Name}
		for _, c := range m.Calls {
			w.Calls = append(w.Calls, call{c.ID, c.Name, string(c.Arguments)})
		}
		out = append(out, w)
	}
	return out
}

func noteTools(tools []chat.Tool) (out []tool) {
	for _, t := range tools {
		out = append(out, tool{t.Name, t.Description, string(t.Parameters)})
	}
	return out
}

// chatMessages is the inverse of noteMessages.
func chatMessages(messages []message) (out []chat.Message) {
	for _, m := range messages {
		w := chat.Message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, CallID: m.CallID, Name: m.Name}
		for _, c := range m.Calls {
			w.Calls = append(w.Calls, chat.Call{ID: c.ID, Name: c.Name, Arguments: json.RawMessage(c.Arguments)})
		}
		out = append(out, w)
	}
	return out
}

// chatTools is the inverse of noteTools.
func chatTools(tools []tool) (out []chat.Tool) {
	for _, t := range tools {
		w := chat.Tool{Name: t.Name, Description: t.Description}
		if t.Parameters != "" {
			w.Parameters = json.RawMessage(t.Parameters)
		}
		out = append(out, w)
	}
	return out
}

// past has the notes of earlier producers on the agent that had the episode last. Its zero value is nothing.
type past struct {
	claim   string
	asks    []*ask
	answers map[int]*told
	outcome *Outcome
	next    int // number of the next request
	// limit refused the newest requests, refused in a row; "" is none.
	limit   schemas.StopReason
	refused int
	// damaged: a note is missing, or cannot be read.
	damaged bool
}

// readPast reads notes.
func readPast(notes [][]byte) past {
	p := past{answers: map[int]*told{}}
	for _, text := range notes {
		var n note
		if json.Unmarshal(text, &n) != nil {
			p.damaged = true
			continue
		}
		switch {
		case n.Claim != "" && n.Claim != p.claim:
			p = past{claim: n.Claim, answers: map[int]*told{}, next: p.next, damaged: p.damaged}
		case n.Ask != nil:
			p.damaged = p.damaged || n.Ask.Number != p.next
			p.asks = append(p.asks, n.Ask)
			p.next = n.Ask.Number + 1
		case n.Answer != nil:
			p.damaged = p.damaged || n.Answer.Number >= p.next
			p.answers[n.Answer.Number] = n.Answer
			p.limit, p.refused = "", 0
		case n.Limit != "":
			p.limit = n.Limit
			p.refused++
		case n.Outcome != nil && p.outcome == nil:
			p.outcome = n.Outcome
		}
	}
	return p
}

// sumTokens is a hash of an answer's tokens.
func sumTokens(tokens []int32) string {
	h := sha256.New()
	fmt.Fprint(h, tokens) // a hash never fails
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// noteAsk notes a request that is in its context, behind the messages that the context held before. The caller holds lasting.writing.
func (s *Session) noteAsk(t *thread, r *request, before int) {
	l := s.lasting
	r.number = l.asks
	l.asks++
	key := r.requestKey()
	l.keeper.Note(encodeNote(note{Ask: &ask{
		Number: r.number, Thread: t.place, Messages: noteMessages(r.messages[before:]), Tools: noteTools(r.tools),
		MaxTokens: r.maxTokens, Stop: r.stop, Single: r.single, MustCall: r.mustCall, Instructions: r.instructions, Key: hex.EncodeToString(key[:]),
	}}))
}

// storeAnswer notes the answer to a request, and returns when it is stored: a client is told of no answer that dies with its producer.
func (s *Session) storeAnswer(r *request, got *reply, sampled []int32) error {
	l := s.lasting
	if l == nil {
		return nil
	}
	l.keeper.Note(encodeNote(note{Answer: &told{r.number, got.id, got.created, sumTokens(sampled)}}))
	return l.keeper.StoreNotes(s.alive)
}

// errOtherwise ends a session whose conversation does not come out as it was. The episode begins again.
var errOtherwise = errors.New("the episode's journal does not give the agent's conversation back as it was")

// restore makes the conversation as it was at the producer before. The sampled tokens come out of the journal.
func (s *Session) restore(ctx context.Context) error {
	l := s.lasting
	if l.past.damaged {
		return fmt.Errorf("%w: a note is missing or cannot be read", errOtherwise)
	}
	newest := map[*thread]*asking{}
	for _, a := range l.past.asks {
		r, t, err := s.recallRequest(a)
		if err != nil {
			return err
		}
		if t, err = s.writeRequest(t, r); err != nil {
			return fmt.Errorf("%w: request %d: %w", errOtherwise, a.Number, err)
		}
		t.busy = false
		answer := l.past.answers[a.Number]
		if answer == nil {
			continue // the agent asks again, and the tokens so far begin the reply
		}
		got, err := s.sampleReply(ctx, t, r)
		if err != nil {
			return err
		}
		if sumTokens(t.sampled) != answer.Sum {
			return fmt.Errorf("%w: answer %d has other tokens", errOtherwise, a.Number)
		}
		got.rename(answer.ID, answer.Created)
		if before := newest[t]; before != nil {
			before.delivered = true // the agent went on from it
		}
		newest[t] = s.keepAnswer(a.Key, t, r, got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop, s.refused, s.refusals = l.past.limit, l.past.refused, l.past.refused
	s.endWhereRefused()
	if l.past.outcome != nil && !s.posted {
		s.postOutcome(*l.past.outcome)
	}
	return nil
}

// recallRequest makes a request of its note, and finds its context; nil is a new context.
func (s *Session) recallRequest(a *ask) (*request, *thread, error) {
	r := &request{
		messages: chatMessages(a.Messages), tools: chatTools(a.Tools), maxTokens: a.MaxTokens, stop: a.Stop, single: a.Single,
		mustCall: a.MustCall, instructions: a.Instructions, number: a.Number,
	}
	if a.Thread < 0 || a.Thread > len(s.threads) {
		return nil, nil, fmt.Errorf("%w: request %d goes on from context %d of %d", errOtherwise, a.Number, a.Thread, len(s.threads))
	}
	if a.Thread == len(s.threads) {
		return r, nil, nil
	}
	t := s.threads[a.Thread]
	r.messages = slices.Concat(t.messages, r.messages)
	t.busy = true
	return r, t, nil
}

// keepAnswer keeps the answer to a request for the client that asks for it again.
func (s *Session) keepAnswer(key string, t *thread, r *request, got *reply) *asking {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &asking{done: make(chan struct{}), cancel: func() {}, reply: got}
	close(a.done)
	var at [sha256.Size]byte
	_, _ = hex.Decode(at[:], []byte(key)) // a damaged key answers nobody
	s.asked[at] = append(s.asked[at], a)
	s.stored[got.id] = &request{messages: t.messages, tools: t.tools, instructions: r.instructions}
	s.replies++
	return a
}

var _ Keeper = (*producers.Episode)(nil)
