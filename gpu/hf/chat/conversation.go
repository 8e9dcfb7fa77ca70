package chat

import (
	"slices"
	"strings"
)

// Conversation is one while it goes on. It is used by one goroutine.
type Conversation struct {
	chat     *Chat
	tools    []Tool
	messages []Message
	text     string // of the ids that the engine has
	begun    int
}

// Begin starts a conversation: the ids are the context that the assistant's first turn is sampled in.
func (c *Chat) Begin(messages []Message, tools []Tool) (*Conversation, []int32, error) {
	v := &Conversation{chat: c, tools: tools, messages: slices.Clone(messages)}
	text, mark, err := c.render(v.messages, tools, true)
	if err != nil {
		return nil, nil, err
	}
	v.text = bare(text, mark)
	return v, c.codec.EncodeMarked(text, mark), nil
}

// Next goes on after the assistant's turn, which was sampled as these ids, with what others say to it. The ids are to be appended to
// those that the engine has, sampled ones included, and end where the assistant's next turn begins. fresh says that the template writes
// the whole in another way than it did: then they are all of a new context.
func (v *Conversation) Next(sampled []int32, said ...Message) (ids []int32, fresh bool, err error) {
	c := v.chat
	body := sampled
	if n := len(body); n > 0 && slices.Contains(c.ends, body[n-1]) {
		body = body[:n-1]
	}
	messages := append(slices.Clone(v.messages), Message{Role: Assistant, Content: c.opener + c.codec.Decode(body)})
	messages = append(messages, said...)
	text, mark, err := c.render(messages, v.tools, true)
	if err != nil {
		return nil, false, err
	}
	had := v.text + string([]rune(c.codec.Decode(sampled))) // bytes that are no UTF-8 are rendered as U+FFFD
	v.messages, v.text = messages, bare(text, mark)
	if at := beyond(text, mark, had); at >= 0 {
		return c.codec.EncodeMarked(text[at:], mark), false, nil
	}
	v.begun++
	return c.codec.EncodeMarked(text, mark), true, nil
}

// Messages are those so far.
func (v *Conversation) Messages() []Message { return slices.Clone(v.messages) }

// Rewritten counts how often the conversation went on as a new context.
func (v *Conversation) Rewritten() int { return v.begun }

func bare(text string, mark rune) string { return strings.ReplaceAll(text, string(mark), "") }

// beyond is where a text with marks goes on after one without them that it begins with; -1 where it does not.
func beyond(text string, mark rune, begin string) int {
	m := string(mark)
	at := 0
	for begin != "" {
		if strings.HasPrefix(text[at:], m) {
			at += len(m)
			continue
		}
		stop := strings.Index(text[at:], m)
		if stop < 0 {
			stop = len(text) - at
		}
		n := min(stop, len(begin))
		if n == 0 || text[at:at+n] != begin[:n] {
			return -1
		}
		at, begin = at+n, begin[n:]
	}
	return at
}
