package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
)

// request is an agent's request to the policy, by any API.
type request struct {
	messages []chat.Message
	tools    []chat.Tool
	// maxTokens bounds the sampled tokens; 0 leaves it to the ticket.
	maxTokens int
	// stop are texts that end the turn; they are not part of the reply.
	stop []string
	// single says that the client takes at most a single call of a turn.
	single bool
	// mustCall says that the turn begins with a call: the policy goes on behind its first token, which is not sampled and not trained on.
	mustCall bool
	// tries is how often the client says that it has asked before.
	tries tries
	// instructions are how many of the messages, at their beginning, are of this request alone: a request that goes on from its reply has
	// its own context.
	instructions int
	// number is that of the request's note in the episode's journal, where there is any.
	number int
	// body has the places of a large request, which are given back when the request is in its context; nil is for none.
	body *largeBody
}

// requestKey returns a hash that tells different requests apart.
func (r *request) requestKey() [sha256.Size]byte {
	told := []any{r.messages, r.tools, r.maxTokens, r.stop, r.single}
	if r.mustCall { // the journals of earlier versions have the keys of requests that need not call
		told = append(told, r.mustCall)
	}
	b, err := json.Marshal(told)
	if err != nil { // a call's arguments, or a tool's parameters, are no JSON: they are told apart as text
		told[0], told[1] = noteMessages(r.messages), noteTools(r.tools)
		b, _ = json.Marshal(told) // plain texts and numbers
	}
	return sha256.Sum256(b)
}

// finish says why a reply ended.
type finish string

const (
	finishStop   finish = "stop"
	finishLength finish = "length"
	finishCalls  finish = "calls"
)

// reply is a turn of the policy, read.
type reply struct {
	id                 string
	created            int64
	reasoning, content string
	calls              []chat.Call
	finish             finish
	// stop is the stop text that ended it; "" where another thing did.
	stop                  string
	promptTokens, sampled int
}

// cutAtStop ends a reply at the first stop text in it; the policy's thoughts may hold a stop text too, and then nothing was answered.
func (r *reply) cutAtStop(stops []string) {
	at, stop := firstStop(r.reasoning, stops)
	if stop != "" {
		r.reasoning, r.content, r.finish, r.stop = r.reasoning[:at], "", finishStop, stop
		return
	}
	if at, stop = firstStop(r.content, stops); stop != "" {
		r.content, r.finish, r.stop = r.content[:at], finishStop, stop
	}
}

// firstStop is the stop text that begins first in a text, and where; "" is none.
func firstStop(text string, stops []string) (at int, stop string) {
	at = len(text)
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && i < at {
			at, stop = i, s
		}
	}
	return at, stop
}

// rename gives a reply the id and the time that it had at an earlier producer.
func (r *reply) rename(id string, created int64) {
	r.id, r.created = id, created
	for i := range r.calls {
		r.calls[i].ID = callID(id, i)
	}
}

// callID is the id of a reply's call.
func callID(reply string, i int) string { return fmt.Sprintf("call_%s_%d", reply, i) }

// asMessage returns the reply as the agent sends it back in its next request.
func (r *reply) asMessage() chat.Message {
	return chat.Message{Role: chat.Assistant, Content: r.content, Calls: r.calls}
}

// haveBeginning reports whether messages begin with the messages of with.
func haveBeginning(messages, with []chat.Message) bool {
	if len(messages) < len(with) {
		return false
	}
	for i := range with {
		if !sameMessage(messages[i], with[i]) {
			return false
		}
	}
	return true
}

// shareMessages returns a copy of messages in which each that is equal to the earlier message at its place is that message. An agent sends
// its whole conversation with each request, and the session keeps the requests: so a text is in memory once.
func shareMessages(messages, earlier []chat.Message) []chat.Message {
	out := slices.Clone(messages)
	for i := range min(len(out), len(earlier)) {
		if reflect.DeepEqual(out[i], earlier[i]) {
			out[i] = earlier[i]
		}
	}
	return out
}

// sameMessage compares messages as clients keep them: space around a content may go, and a call's id and arguments may be written anew.
func sameMessage(a, b chat.Message) bool {
	return a.Role == b.Role && a.CallID == b.CallID && strings.TrimSpace(a.Content) == strings.TrimSpace(b.Content) &&
		slices.EqualFunc(a.Calls, b.Calls, func(a, b chat.Call) bool {
			return a.Name == b.Name && (a.ID == b.ID || a.ID == "" || b.ID == "") &&
				bytes.Equal(canonicalJSON(a.Arguments), canonicalJSON(b.Arguments))
		})
}

// sameTools compares the tools that are shown to the policy.
func sameTools(a, b []chat.Tool) bool {
	return slices.EqualFunc(a, b, func(a, b chat.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && bytes.Equal(canonicalJSON(a.Parameters), canonicalJSON(b.Parameters))
	})
}

// canonicalJSON returns JSON with its keys in order and without space; other text stays as it is.
func canonicalJSON(raw json.RawMessage) []byte {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
