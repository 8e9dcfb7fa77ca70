package agents

import "github.com/weir-rl/weir/gpu/hf/chat"

// Tagged is the configuration of an agent whose policy writes tags, each a token of its own in a tokenizer of words.
type Tagged interface {
	// TagTokens lists the tags, such as "<code>".
	TagTokens() []string
}

// ChatSpeaker is an agent that speaks a model's own chat template. A caller that asks the run's policy without an agent, such as the OpenAI
// API, writes its conversations in the same format.
type ChatSpeaker interface {
	// Chat is the template, never nil.
	Chat() *chat.Chat
}

// Awaited is an agent that comes for episodes by itself: an episode waits until it does.
type Awaited interface {
	// Awaited reports whether episodes wait for the agent.
	Awaited() bool
}

// Addressed is an agent that may have an address of its own, at which the programs of all its episodes ask.
type Addressed interface {
	// Addressed reports whether it has: a single process can then play the agent's episodes.
	Addressed() bool
}
