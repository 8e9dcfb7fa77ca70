package producers

import (
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// Transcript is a finished rollout in text, for rewards and for people.
type Transcript struct {
	// Prompt is the question as text.
	Prompt string
	// Text is the whole of the last context, what tools said among it, decoded as it is.
	Text  string
	Turns []TranscriptTurn
	// Answer is the final answer; "" if there was none.
	Answer string
	Stop   schemas.StopReason
	// Sampled counts the tokens that the policy sampled.
	Sampled int
}

// TranscriptTurn is one move of the agent.
type TranscriptTurn struct {
	// Text is what the policy sampled, decoded.
	Text string
	// Tool is "" when the turn called none; Arguments are what it was called with.
	Tool, Arguments string
	// Observation is what the tool said, Error why it failed.
	Observation, Error string
}

func (e *Episode) transcript() *Transcript {
	t := &Transcript{Prompt: e.ticket.Prompt.Text, Answer: e.answer, Stop: e.stop, Text: e.env.Tokenizer.Decode(e.Context())}
	for i, turn := range e.turns {
		tokens := e.segments[turn.Segment].Tokens[turn.Start:turn.End]
		t.Sampled += len(tokens)
		t.Turns = append(t.Turns, TranscriptTurn{
			Text: e.env.Tokenizer.Decode(tokens), Tool: turn.Tool, Arguments: turn.Arguments,
			Observation: e.said[i], Error: turn.Error,
		})
	}
	return t
}

// Calls counts the tool calls.
func (t *Transcript) Calls() int {
	n := 0
	for _, turn := range t.Turns {
		if turn.Tool != "" {
			n++
		}
	}
	return n
}

// String shows the rollout one move a line.
func (t *Transcript) String() string {
	var b strings.Builder
	b.WriteString("prompt: " + t.Prompt + "\n")
	for _, turn := range t.Turns {
		b.WriteString("policy: " + turn.Text + "\n")
		if turn.Tool != "" {
			b.WriteString(turn.Tool + ": " + turn.Observation + "\n")
		}
	}
	b.WriteString("stop: " + string(t.Stop) + "\n")
	if t.Answer != "" {
		b.WriteString("answer: " + t.Answer + "\n")
	}
	return b.String()
}
