package gateway

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
)

// Speaker writes conversations as token ids and reads the policy's tokens.
type Speaker interface {
	// Begin are the ids of a conversation up to where the policy's turn begins, and the conversation to go on with.
	Begin(messages []chat.Message, tools []chat.Tool) (Talk, []int32, error)
	// Stop are the ids that end a turn.
	Stop() []int32
	// Read is what the policy said to somebody who offers it these tools, without the id that ends a turn, and whether that was there.
	Read(sampled []int32, tools []chat.Tool) (r chat.Reply, ended bool)
	// Tools is nil where the policy can be shown tools, else why not.
	Tools() error
	// BeginCall are the ids that begin a call, and hold a turn to it; it fails where there are none.
	BeginCall() ([]int32, error)
}

// Talk is a conversation that goes on. It is used by one goroutine at a time.
type Talk interface {
	// Next are the ids after the ids that the policy has, its own turn included. fresh says that they are all of a new context.
	Next(sampled []int32, said ...chat.Message) (ids []int32, fresh bool, err error)
}

// cloneTalk returns a copy of a conversation, to be continued before it is known whether there is room. Running text keeps nothing of a
// call.
func cloneTalk(t Talk) Talk {
	if talk, ok := t.(*chat.Conversation); ok {
		return talk.Clone()
	}
	return t
}

// Templated speaks by the chat template of a model folder.
func Templated(c *chat.Chat) Speaker { return templated{c} }

type templated struct{ chat *chat.Chat }

func (s templated) Begin(messages []chat.Message, tools []chat.Tool) (Talk, []int32, error) {
	talk, ids, err := s.chat.Begin(messages, tools)
	if err != nil {
		return nil, nil, err
	}
	return talk, ids, nil
}

func (s templated) Stop() []int32 { return s.chat.Stop() }
func (s templated) Tools() error  { return s.chat.Tools() }

func (s templated) BeginCall() ([]int32, error) { return s.chat.BeginCall() }
func (s templated) Read(sampled []int32, tools []chat.Tool) (chat.Reply, bool) {
	return s.chat.ParseIDs(sampled, tools...)
}

// Running speaks to a policy that was trained on running text and has no chat template: the contents of the messages in order, without
// their roles, and a turn that ends at a stop text. Each of these is a token.
func Running(tok producers.Tokenizer, stop []string) (Speaker, error) {
	if len(stop) == 0 {
		return nil, errors.New("stop: name the tokens that end a turn: the model has no chat template to tell")
	}
	s := running{tok: tok}
	for _, text := range stop {
		id, ok := tok.ID(text)
		if !ok {
			return nil, fmt.Errorf("stop: %q is no token of the model: name tokens by their exact text", text)
		}
		s.ends = append(s.ends, id)
	}
	return s, nil
}

type running struct {
	tok  producers.Tokenizer
	ends []int32
}

func (s running) Begin(messages []chat.Message, _ []chat.Tool) (Talk, []int32, error) {
	ids := s.encodeMessages(messages)
	if len(ids) == 0 {
		return nil, nil, errors.New("the messages have no text")
	}
	return s, ids, nil
}

func (s running) Next(_ []int32, said ...chat.Message) ([]int32, bool, error) {
	return s.encodeMessages(said), false, nil
}

func (s running) Stop() []int32 { return s.ends }

func (running) Tools() error {
	return errors.New("the model has no chat template that shows tools: write in the messages how to call them, and read the calls out of the text")
}

// BeginCall fails as Tools does.
func (s running) BeginCall() ([]int32, error) { return nil, s.Tools() }

// Read keeps the end of the turn: for such a model it is part of the text, as </answer> is.
func (s running) Read(sampled []int32, _ []chat.Tool) (chat.Reply, bool) {
	ended := false
	for _, end := range s.ends {
		ended = ended || len(sampled) > 0 && sampled[len(sampled)-1] == end
	}
	text := s.tok.Decode(sampled)
	return chat.Reply{Content: text, Said: text}, ended
}

// encodeMessages encodes messages. A tool's text never becomes a control token; an agent that writes to such a model may use them.
func (s running) encodeMessages(messages []chat.Message) (ids []int32) {
	plain, ok := s.tok.(tokenizer.PlainEncoder)
	for _, m := range messages {
		if ok && m.Role == chat.ToolRole {
			ids = append(ids, plain.EncodeText(m.Content)...)
			continue
		}
		ids = append(ids, s.tok.Encode(m.Content)...)
	}
	return ids
}
