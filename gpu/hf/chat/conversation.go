package chat

import (
	"slices"
	"strings"
)

// Conversation is a conversation while it goes on. A single goroutine uses it.
type Conversation struct {
	chat     *Chat
	tools    []Tool
	messages []Message
	text     string // of the ids that the engine has, as the template writes them
	turn     []part // of the assistant's turn so far, where tools speak within it
	begun    int
}

// Begin starts a conversation: the ids are the context that the assistant's first turn is sampled in.
func (c *Chat) Begin(messages []Message, tools []Tool) (*Conversation, []int32, error) {
	v := &Conversation{chat: c, tools: tools, messages: slices.Clone(messages)}
	text, mark, err := c.renderText(v.messages, tools, true)
	if err != nil {
		return nil, nil, err
	}
	v.text = removeMark(text, mark)
	return v, c.codec.EncodeMarked(text, mark), nil
}

// Clone is a copy of the conversation, which may go on in another way.
func (v *Conversation) Clone() *Conversation {
	c := *v
	c.messages, c.turn = slices.Clone(v.messages), slices.Clone(v.turn)
	return &c
}

// Read is [Chat.ParseIDs] of the ids sampled since the last ids.
func (v *Conversation) Read(sampled []int32) (r Reply, ended bool) {
	if len(v.turn) > 0 {
		return v.chat.parseSampled("", sampled, v.tools)
	}
	return v.chat.ParseIDs(sampled, v.tools...)
}

// Next goes on after the assistant's turn, which was sampled as these ids, with the messages of others. The ids are to be
// appended to those that the engine has, sampled ones included, and end where the assistant's next turn begins. fresh is true
// where the template now writes the whole in another way than before: the ids are then all of a new context.
//
// In the formats tag, code and fence a turn that paused at a call goes on behind the tools' results.
func (v *Conversation) Next(sampled []int32, said ...Message) (ids []int32, fresh bool, err error) {
	c := v.chat
	ended := len(sampled) > 0 && slices.Contains(c.ends, sampled[len(sampled)-1])
	if c.style.Format.withinTurn() && !ended && !slices.ContainsFunc(said, func(m Message) bool { return m.Role != ToolRole }) {
		return v.appendResults(sampled, said), false, nil
	}
	messages := append(slices.Clone(v.messages), v.assistantMessage(sampled))
	for _, m := range said {
		if c.style.Format == FormatHarmony && m.Role == ToolRole && len(messages[len(v.messages)].Calls) == 0 {
			m = Message{Role: User, Content: m.Content} // there is no call that it could answer
		}
		messages = append(messages, m)
	}
	text, mark, err := c.renderText(messages, v.tools, true)
	if err != nil {
		return nil, false, err
	}
	had := v.text + validUTF8(c.codec.Decode(sampled))
	at := continuationAt(text, mark, had)
	if from := continuationAt(text, mark, v.text); at < 0 && from >= 0 && c.style.Format == FormatHarmony {
		if at = c.afterTurn(text[from:], mark, sampled); at >= 0 {
			at += from
		}
	}
	v.messages, v.text, v.turn = messages, removeMark(text, mark), nil
	if at >= 0 {
		return c.encodeAfter(sampled, text[at:], mark), false, nil
	}
	v.begun++
	return c.codec.EncodeMarked(text, mark), true, nil
}

// validUTF8 is a text in which bytes that are no UTF-8 are U+FFFD, as they are rendered.
func validUTF8(text string) string { return string([]rune(text)) }

// assistantMessage is the assistant's turn as a message.
func (v *Conversation) assistantMessage(sampled []int32) Message {
	c := v.chat
	if c.style.Format == FormatHarmony {
		r, _ := c.ParseIDs(sampled, v.tools...)
		return harmonyMessage(r)
	}
	if n := len(sampled); n > 0 && slices.Contains(c.ends, sampled[n-1]) {
		sampled = sampled[:n-1]
	}
	m := Message{Role: Assistant, Content: c.opener}
	if v.turn == nil {
		m.Content += c.codec.Decode(sampled)
		return m
	}
	m.parts = append([]part{{Assistant, c.opener}}, v.turn...)
	m.parts = append(m.parts, part{Assistant, c.codec.Decode(sampled)})
	m.Content = ""
	for _, p := range m.parts {
		m.Content += p.text
	}
	return m
}

// appendResults puts tools' results behind a call, in the same turn.
func (v *Conversation) appendResults(sampled []int32, said []Message) []int32 {
	c, open, end := v.chat, "\n<"+v.chat.style.resultTag()+">\n", "\n</"+v.chat.style.resultTag()+">\n"
	text := c.codec.Decode(sampled)
	v.turn, v.text = append(v.turn, part{Assistant, text}), v.text+validUTF8(text)
	ids := slices.Clip(sampled)
	for _, m := range said {
		own := c.codec.Normalized(c.style.breakTags(m.Content, v.tools))
		mark := markFor(own)
		own = withoutMark(own, mark)
		block := open + guardSpellings(own, c.added, mark) + end
		ids = append(ids, c.encodeAfter(ids, block, mark)...)
		v.turn = append(v.turn, part{Assistant, open}, part{ToolRole, own}, part{Assistant, end})
		v.text += validUTF8(open + own + end)
	}
	return ids[len(sampled):]
}

// encodeAfter are the ids of a text that goes on behind ids.
func (c *Chat) encodeAfter(ids []int32, text string, mark rune) []int32 {
	last := c.before
	if n := len(ids); n > 0 {
		last = ids[n-1]
	}
	return c.codec.EncodeBehind(last, text, mark)
}

// Messages are the messages so far.
func (v *Conversation) Messages() []Message { return slices.Clone(v.messages) }

// Rewritten counts how often the conversation went on as a new context.
func (v *Conversation) Rewritten() int { return v.begun }

func removeMark(text string, mark rune) string { return strings.ReplaceAll(text, string(mark), "") }

// continuationAt is the place at which a text with marks goes on after begin, a text without marks; -1 where the text does not
// begin with it.
func continuationAt(text string, mark rune, begin string) int {
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
