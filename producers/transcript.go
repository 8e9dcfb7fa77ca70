package producers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// Transcript is a finished rollout in text, for rewards and for people.
type Transcript struct {
	// Prompt is the question as text.
	Prompt string
	// Text is the whole text, the tools' words among it, decoded as it is: the first segment, and of each further segment the tokens after
	// its beginning, which an agent wrote anew.
	Text string
	// Contexts are the segments as the policy saw them, in order.
	Contexts []TranscriptContext
	// Turns are in the order of their segments and, within each, of time.
	Turns []TranscriptTurn
	// Answer is the final answer; "" if there was none.
	Answer string
	Stop   schemas.StopReason
	// Sampled counts the tokens that the policy sampled.
	Sampled int
	// Posted is the reward that the agent gave itself by [Episode.Post]; nil is none.
	Posted *Score
	// Metrics are the numbers that the tools reported, added up over the episode; nil is none.
	Metrics map[string]float64
	// Workspace is the episode's sandbox, for rewards that look into it; nil where no tool has a workspace, and after the rollout was
	// scored.
	Workspace Workspace
	// pieces are the rollout's pieces; nil is none.
	pieces func() []Piece
}

// TranscriptContext is a segment.
type TranscriptContext struct {
	// Agent is the name of the agent that acted in it; "" where an agent acts alone.
	Agent string
	// Text is the whole of it, decoded.
	Text string
	// Answer is the agent's answer in a context of its own, at the context's last segment: see [Context.Answer]. "" is none.
	Answer string
}

// TranscriptTurn is a move of the agent.
type TranscriptTurn struct {
	// Context is its segment's place among [Transcript.Contexts].
	Context int
	// Text is the sampled text.
	Text string
	// Tool, Arguments, Observation and Error are of the turn's call, "" when it made none; of several calls tools are joined by commas, the
	// rest by line breaks.
	Tool, Arguments, Observation, Error string
	// Calls are the turn's, in order.
	Calls []TranscriptCall
	// Outputs and Errors are added up over the turn's calls: see [Observation].
	Outputs, Errors int
	// Reward is the sum of the rewards of the turn's tools.
	Reward float64
}

// TranscriptCall is a call of a tool.
type TranscriptCall struct {
	Tool, Arguments string
	// Observation is the tool's text, Error the reason why it failed.
	Observation, Error string
	// Failed is whether the call came to nothing: the tool failed, or code that it ran ended in an error.
	Failed bool
}

// sortTurns puts the turns in the order of their segments: turns of contexts that went on at the same time come in any order.
func (e *Episode) sortTurns() {
	slices.SortStableFunc(e.turns, func(a, b *turn) int { return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Start, b.Start)) })
}

// newTranscript returns the transcript of the episode so far.
func (e *Episode) newTranscript() *Transcript {
	e.sortTurns()
	t := &Transcript{Prompt: e.ticket.Prompt.Text, Answer: e.answer, Stop: e.stop, Posted: e.posted, Metrics: e.reported}
	t.pieces = func() []Piece {
		turns := make([]schemas.Turn, len(e.turns))
		for i, turn := range e.turns {
			turns[i] = turn.Turn
		}
		return listPieces(e.env.Tokenizer, e.segments, turns)
	}
	t.addContexts(e.segments, e.env.Tokenizer)
	for _, c := range e.contexts {
		t.Contexts[c.segment].Answer = c.answer
	}
	for _, turn := range e.turns {
		tokens := e.segments[turn.Segment].Tokens[turn.Start:turn.End]
		t.Sampled += len(tokens)
		out := TranscriptTurn{Context: turn.Segment, Text: e.env.Tokenizer.Decode(tokens), Reward: turn.ProcessReward}
		for i, call := range turn.Turn.Calls {
			out.addCall(TranscriptCall{call.Tool, call.Arguments, turn.said[i].Text, call.Error, call.Failed})
			out.Outputs, out.Errors = out.Outputs+turn.said[i].Outputs, out.Errors+turn.said[i].Errors
		}
		t.Turns = append(t.Turns, out)
	}
	return t
}

// addContexts adds the segments and the whole text.
func (t *Transcript) addContexts(segments []schemas.Segment, tok Tokenizer) {
	var said []int32
	for i := range segments {
		s := &segments[i]
		t.Contexts = append(t.Contexts, TranscriptContext{Agent: s.Agent, Text: tok.Decode(s.Tokens)})
		if i == 0 {
			said = append(said, s.Tokens...)
		} else if at := slices.Index(s.ActionMask, 1); at >= 0 {
			said = append(said, s.Tokens[at:]...)
		}
	}
	t.Text = tok.Decode(said)
}

// addCall adds a call to the turn.
func (t *TranscriptTurn) addCall(c TranscriptCall) {
	if len(t.Calls) == 0 {
		t.Tool, t.Arguments, t.Observation, t.Error = c.Tool, c.Arguments, c.Observation, c.Error
	} else {
		t.Tool, t.Arguments, t.Observation = t.Tool+", "+c.Tool, t.Arguments+"\n"+c.Arguments, t.Observation+"\n"+c.Observation
		t.Error = strings.Trim(t.Error+"\n"+c.Error, "\n")
	}
	t.Calls = append(t.Calls, c)
}

// Calls counts the tool calls.
func (t *Transcript) Calls() int {
	n := 0
	for _, turn := range t.Turns {
		if n += len(turn.Calls); len(turn.Calls) == 0 && turn.Tool != "" {
			n++
		}
	}
	return n
}

// String shows the rollout a move a line.
func (t *Transcript) String() string {
	var b strings.Builder
	b.WriteString("prompt: " + t.Prompt + "\n")
	for _, turn := range t.Turns {
		b.WriteString(cmp.Or(t.agentOf(turn), "policy") + ": " + turn.Text + "\n")
		for _, call := range turn.Calls {
			b.WriteString(call.Tool + ": " + call.Observation + "\n")
		}
	}
	b.WriteString("stop: " + string(t.Stop) + "\n")
	if t.Answer != "" {
		b.WriteString("answer: " + t.Answer + "\n")
	}
	return b.String()
}

// agentOf returns the agent that made a turn.
func (t *Transcript) agentOf(turn TranscriptTurn) string {
	if turn.Context < len(t.Contexts) {
		return t.Contexts[turn.Context].Agent
	}
	return ""
}
