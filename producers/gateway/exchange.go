package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
)

// request is what an agent asks of the policy, whichever API it asks by.
type request struct {
	messages []chat.Message
	tools    []chat.Tool
	// maxTokens bounds what is sampled; 0 leaves it to the ticket.
	maxTokens int
	// stop are texts that end the turn; they are not part of the reply.
	stop []string
	// retry says that the client sends the request again because it got no answer.
	retry bool
}

// key tells requests apart that ask for something else.
func (r *request) key() [sha256.Size]byte {
	// Encoding slices of plain structs does not fail.
	b, _ := json.Marshal([]any{r.messages, r.tools, r.maxTokens, r.stop})
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
	id                    string
	created               int64
	reasoning, content    string
	calls                 []chat.Call
	finish                finish
	promptTokens, sampled int
}

// message is the reply as the agent sends it back in its next request.
func (r *reply) message() chat.Message {
	return chat.Message{Role: chat.Assistant, Content: r.content, Calls: r.calls}
}

// begins says whether messages begin with these.
func begins(messages, with []chat.Message) bool {
	if len(messages) < len(with) {
		return false
	}
	for i := range with {
		if !same(messages[i], with[i]) {
			return false
		}
	}
	return true
}

// same compares messages as clients keep them: space around a content may go, and a call's id and arguments may be written anew.
func same(a, b chat.Message) bool {
	return a.Role == b.Role && a.CallID == b.CallID && strings.TrimSpace(a.Content) == strings.TrimSpace(b.Content) &&
		slices.EqualFunc(a.Calls, b.Calls, func(a, b chat.Call) bool {
			return a.Name == b.Name && (a.ID == b.ID || a.ID == "" || b.ID == "") && bytes.Equal(canonical(a.Arguments), canonical(b.Arguments))
		})
}

// sameTools compares what tools are shown to the policy.
func sameTools(a, b []chat.Tool) bool {
	return slices.EqualFunc(a, b, func(a, b chat.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && bytes.Equal(canonical(a.Parameters), canonical(b.Parameters))
	})
}

// canonical is JSON with its keys in order and without space; what is no JSON stays as it is.
func canonical(raw json.RawMessage) []byte {
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
