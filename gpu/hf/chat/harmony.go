package chat

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// The control tokens of FormatHarmony, as https://cookbook.openai.com/articles/openai-harmony has them.
const (
	startToken     = "<|start|>"
	channelToken   = "<|channel|>"
	messageToken   = "<|message|>"
	constrainToken = "<|constrain|>"
	endToken       = "<|end|>"
	callToken      = "<|call|>"
	returnToken    = "<|return|>"
)

const (
	analysis   = "analysis"
	commentary = "commentary"
	final      = "final"
	functions  = "functions."
	// nextMessage ends a message of a turn and begins the next.
	nextMessage = endToken + startToken + Assistant
)

// message is a message of a turn, or of a rendered conversation.
type message struct {
	role, channel, recipient string
	body, end                string // end is "" where the text ends without an end token
}

// nextHarmony is the message that a text begins with, and the text after it. ok is false where there is none.
func nextHarmony(text string) (m message, rest string, ok bool) {
	header, rest, ok := strings.Cut(text, messageToken)
	if !ok || strings.Contains(header, endToken) || strings.Contains(header, callToken) || strings.Contains(header, returnToken) {
		return m, text, false
	}
	m.role = Assistant
	if _, named, begun := strings.Cut(header, startToken); begun {
		header = named
		m.role, _, _ = strings.Cut(strings.NewReplacer(channelToken, " ", constrainToken, " ").Replace(header), " ")
		header = strings.TrimPrefix(header, m.role)
	}
	header = strings.NewReplacer(channelToken, " "+channelToken, constrainToken, " "+constrainToken).Replace(header)
	for word := range strings.FieldsSeq(header) {
		if channel, is := strings.CutPrefix(word, channelToken); is {
			m.channel = channel
		} else if to, is := strings.CutPrefix(word, "to="); is {
			m.recipient = to
		}
	}
	at := 0
	if m.recipient != "" { // a string of the arguments may spell an end token
		decoder := json.NewDecoder(strings.NewReader(rest))
		var value json.RawMessage
		if decoder.Decode(&value) == nil {
			at = int(decoder.InputOffset())
		}
	}
	stop := len(rest)
	for _, end := range []string{endToken, callToken, returnToken} {
		if i := strings.Index(rest[at:], end); i >= 0 && at+i < stop {
			stop, m.end = at+i, end
		}
	}
	m.body = rest[:stop]
	return m, rest[stop+len(m.end):], true
}

// readHarmony reads a turn. The last message of a turn is a call or the answer.
func (r *Reply) readHarmony(text string, plain func(string) string) {
	var thoughts, said, whole []string
	seen := false
	for strings.TrimSpace(text) != "" {
		m, rest, ok := nextHarmony(text)
		if !ok {
			whole = append(whole, plain(strings.TrimSuffix(text, returnToken)))
			if seen {
				r.addFault("the turn does not go on with " + messageToken)
			} else {
				said = append(said, plain(strings.TrimSuffix(text, returnToken)))
				r.addFault("the turn is no message: want " + channelToken + final + messageToken + " and the answer, or a call")
			}
			break
		}
		body, message := plain(m.body), plain(text[:len(text)-len(rest)])
		seen, text = true, rest
		switch {
		case m.role != Assistant:
			r.addFault(fmt.Sprintf("the turn goes on as %s: only the assistant's messages are the turn's", quoteShort(plain(m.role))))
			text = ""
		case m.recipient != "":
			r.harmonyCall(plain(strings.TrimPrefix(m.recipient, functions)), body)
		case m.end == callToken:
			r.addFault("the call names no tool: want to=" + functions + "name before " + messageToken)
		case m.channel == analysis:
			thoughts = append(thoughts, body)
			continue
		default:
			said = append(said, body)
			message = body
		}
		whole = append(whole, message)
	}
	r.Reasoning, r.Content = strings.TrimSpace(strings.Join(thoughts, "\n")), strings.TrimSpace(strings.Join(said, "\n"))
	r.Said = strings.TrimSpace(strings.Join(whole, "\n"))
}

// quoteShort is a text of the policy's, as it stands in a message to the policy.
func quoteShort(text string) string { return fmt.Sprintf("%.40q", text) }

func (r *Reply) harmonyCall(name, body string) {
	if name == "" {
		r.addFault("the call names no tool: want to=" + functions + "name before " + messageToken)
		return
	}
	arguments, err := objectOf(json.RawMessage(body))
	if err != nil {
		r.tried = name
		r.addFault(fmt.Sprintf("the arguments of %s%s are %v", functions, name, err))
		return
	}
	r.Calls = append(r.Calls, Call{Name: name, Arguments: arguments})
}

// harmonyCall is a call up to its end token, with these arguments, as the template writes it: some templates name the tool
// before the channel.
func (c *Chat) harmonyCall(call Call, arguments string) string {
	to := " to=" + functions + call.Name
	if c.toFirst {
		return to + channelToken + commentary + " json" + messageToken + arguments
	}
	return channelToken + commentary + to + " " + constrainToken + "json" + messageToken + arguments
}

// harmonyTurn is a turn as the model would sample it, with its end. guarded is applied to everything but control tokens.
func (c *Chat) harmonyTurn(r Reply, guarded func(string) string) string {
	text := ""
	if r.Reasoning != "" {
		text = channelToken + analysis + messageToken + guarded(r.Reasoning) + nextMessage
	}
	if len(r.Calls) == 0 {
		return text + channelToken + final + messageToken + guarded(r.Content) + returnToken
	}
	if r.Content != "" {
		text += channelToken + commentary + messageToken + guarded(r.Content) + nextMessage
	}
	call := r.Calls[0]
	call.Name = guarded(call.Name)
	return text + c.harmonyCall(call, guarded(string(call.Arguments))) + callToken
}

// harmonyMessage is a turn as a message for the template, which writes at most a single call and no words beside it.
func harmonyMessage(r Reply) Message {
	m := Message{Role: Assistant, Reasoning: r.Reasoning, Content: r.Content, Calls: r.Calls[:min(1, len(r.Calls))]}
	if len(m.Calls) == 0 && r.tried != "" { // the answer to it needs a call that it answers
		m.Calls = []Call{{Name: r.tried, Arguments: json.RawMessage("{}")}}
	}
	if len(m.Calls) > 0 && m.Content != "" {
		m.Reasoning, m.Content = strings.TrimSpace(m.Reasoning+"\n"+m.Content), ""
	}
	return m
}

// afterTurn is where a rendered text goes on after a turn that it begins with, written in the template's way: the same messages as
// were sampled, though the header of a call and the spacing of its arguments may be others. -1 where it does not begin so.
func (c *Chat) afterTurn(text string, mark rune, sampled []int32) int {
	turn, plain := c.markControlled(sampled)
	rest := text
	for last := ""; strings.TrimSpace(turn) != ""; {
		want, more, ok := nextHarmony(turn)
		got, after, same := nextHarmony(rest)
		switch {
		case !ok || !same || want.channel != got.channel || want.role != got.role:
			return -1
		case plain(want.recipient) != removeMark(got.recipient, mark) || !sameBody(plain(want.body), removeMark(got.body, mark), want.recipient != ""):
			return -1
		case want.end == "": // it was cut short, and is ended for the model
			return len(text) - len(after) - len(got.end)
		case want.end != got.end:
			return -1
		}
		last = want.end
		turn, rest = more, after
		if last != endToken {
			break
		}
	}
	if len(rest) == len(text) || strings.TrimSpace(turn) != "" {
		return -1
	}
	return len(text) - len(rest)
}

// sameBody reports whether two bodies have the same content. A call's body that is no JSON is not in the template's text.
func sameBody(sampled, written string, call bool) bool {
	if !call {
		return strings.TrimSpace(sampled) == strings.TrimSpace(written)
	}
	arguments, err := objectOf(json.RawMessage(sampled))
	if err != nil {
		return true
	}
	var a, b any
	return unmarshalNumbers(arguments, &a) == nil && unmarshalNumbers([]byte(written), &b) == nil && reflect.DeepEqual(a, b)
}

// unmarshalNumbers keeps numbers as they are written.
func unmarshalNumbers(data []byte, v any) error {
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	return decoder.Decode(v)
}
