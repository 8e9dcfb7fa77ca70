package producers

import (
	"time"

	"github.com/weir-rl/weir/schemas"
)

// MoveKind is the kind of a move.
type MoveKind string

// The kinds of moves.
const (
	MovePrompt      MoveKind = "prompt"      // the context that the episode begins with
	MoveContext     MoveKind = "context"     // a further context, or a context that the agent wrote anew
	MovePolicy      MoveKind = "policy"      // the policy's tokens, to the end of its turn
	MoveTool        MoveKind = "tool"        // a call, as it is made
	MoveObservation MoveKind = "observation" // the observation of a call, or other text that the agent put into the context
)

// Move is something that happens in an episode, for people who watch it go on.
type Move struct {
	Kind MoveKind
	// Agent is the name of the agent that acts in the context; "" where an agent acts alone.
	Agent string
	// Segment is the segment that the move is in.
	Segment int
	// Text is the move's text: a call's arguments, a tool's sanitized observation.
	Text string
	// Tool is the tool of a call or of its observation, Call the call's index in the episode; "" and 0 for a move without a tool.
	Tool string
	Call int
	// Took is how long a call went on; Failed that it came to nothing. Both are of its observation.
	Took   time.Duration
	Failed bool
}

// notifyMove tells the episode's watcher of a move, whose text is that of the tokens where it has none.
func (c *Context) notifyMove(m Move, tokens []int32) {
	watch := c.e.env.Watch
	if watch == nil {
		return
	}
	m.Agent, m.Segment = c.agent, c.segment
	if tokens != nil {
		m.Text = c.e.env.Tokenizer.Decode(tokens)
	}
	watch(m)
}

// watchedCall tells of a call, as it is made.
func (c *Context) watchedCall(call ToolCall, index int) {
	c.notifyMove(Move{Kind: MoveTool, Text: schemas.CallText(call.Arguments), Tool: schemas.CallText(call.Name), Call: index}, nil)
}
