package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// probeWord is said in the conversation that a template is tried on; no template's own text holds it.
const probeWord = "weirprobe"

// probe tries the template: it must render a question, an answer and a further question. What ends a turn, and what of a turn the
// prompt begins, is seen there; so is whether tools can answer and which messages make the template write anew what it wrote before.
func (c *Chat) probe() error {
	question := []Message{{Role: User, Content: "Is this " + probeWord + "?"}}
	prompt, mark, err := c.render(question, nil, true)
	if err != nil {
		return fmt.Errorf("a question: %w", err)
	}
	if !strings.Contains(prompt, probeWord) {
		return errors.New("a question: the template leaves out what the user says")
	}
	prompt = bare(prompt, mark)
	answered, mark, err := c.render([]Message{
		question[0], {Role: Assistant, Content: "answer-" + probeWord}, {Role: User, Content: "And this?"},
	}, nil, false)
	if err != nil {
		return fmt.Errorf("a second question: %w", err)
	}
	answered = bare(answered, mark)
	at := strings.LastIndex(answered, "answer-"+probeWord)
	if at < 0 {
		return errors.New("a question and its answer: the template leaves out what the assistant says")
	}
	// The prompt goes on with the turn's first text where it is longer than what stands before an answer.
	same := 0
	for same < min(len(prompt), at) && prompt[same] == answered[same] {
		same++
	}
	c.opener = prompt[same:]
	for _, id := range c.codec.Encode(answered[at+len("answer-"+probeWord):]) {
		if c.codec.Special(id) {
			c.ends = []int32{id}
			break
		}
	}
	if len(c.ends) == 0 {
		return nil // the folder may name the end
	}
	return errors.Join(c.probeUser(question), c.probeTools(question))
}

// probeUser sees whether a further question leaves what was there as it was.
func (c *Chat) probeUser(question []Message) error {
	v, _, err := c.Begin(question, nil)
	if err != nil {
		return err
	}
	turn, err := c.Turn(c.thought() + "Yes.")
	if err != nil {
		return err
	}
	_, fresh, err := v.Next(turn, Message{Role: User, Content: "And " + probeWord + "?"})
	if err != nil {
		return fmt.Errorf("a second question: %w", err)
	}
	if fresh {
		c.rewrites = append(c.rewrites, User)
	}
	return nil
}

// thought is the beginning of a turn of a model that thinks.
func (c *Chat) thought() string {
	if !strings.Contains(c.plain.Source(), "</think>") || strings.Contains(c.opener, "</think>") {
		return ""
	}
	return "<think>\nIt is.\n</think>\n\n"
}

// probeTools sees whether a model can be told what tools said.
func (c *Chat) probeTools(question []Message) error {
	tools := []Tool{{Name: "look", Description: "Looks it up.", Parameters: json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}`)}}
	v, _, err := c.Begin(question, tools)
	if err != nil {
		c.toolFault = fmt.Errorf("the template takes no tools: %w", err)
		return nil
	}
	if !strings.Contains(v.text, "Looks it up.") {
		c.toolFault = errors.New("the template leaves out which tools there are")
		return nil
	}
	if c.format == FormatNone {
		return nil
	}
	turn, err := c.Turn(c.thought() + c.format.Write([]Call{{Name: "look", Arguments: json.RawMessage(`{"word": "it"}`)}}))
	if err != nil {
		return err
	}
	_, fresh, err := v.Next(turn, Message{Role: ToolRole, Name: "look", Content: "found-" + probeWord})
	switch {
	case err != nil:
		c.toolFault = fmt.Errorf("the template takes no answer of a tool: %w", err)
	case !strings.Contains(v.text, "found-"+probeWord):
		c.toolFault = errors.New("the template leaves out what a tool says")
	case fresh && !slices.Contains(c.rewrites, ToolRole):
		c.rewrites = append(c.rewrites, ToolRole)
	}
	return nil
}
