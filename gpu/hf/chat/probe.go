package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// probeWord is a word in the conversation that a template is tried on. No template's own text holds it.
const probeWord = "weirprobe"

// probeTemplate tries the template: it must render a question, an answer and a further question. It thereby finds the end of a turn,
// the part of a turn that the prompt begins, whether tools can answer, and the messages after which the template writes earlier
// text anew.
func (c *Chat) probeTemplate() error {
	question := []Message{{Role: User, Content: "Is this " + probeWord + "?"}}
	prompt, mark, err := c.renderText(question, nil, true)
	if err != nil {
		return fmt.Errorf("a question: %w", err)
	}
	if !strings.Contains(prompt, probeWord) {
		return errors.New("a question: the template leaves out what the user says")
	}
	ids := c.codec.EncodeMarked(prompt, mark)
	c.before = ids[len(ids)-1]
	prompt = removeMark(prompt, mark)
	answered, mark, err := c.renderText([]Message{
		question[0], {Role: Assistant, Content: "answer-" + probeWord}, {Role: User, Content: "And this?"},
	}, nil, false)
	if err != nil {
		return fmt.Errorf("a second question: %w", err)
	}
	answered = removeMark(answered, mark)
	at := strings.LastIndex(answered, "answer-"+probeWord)
	if at < 0 {
		return errors.New("a question and its answer: the template leaves out what the assistant says")
	}
	// If the prompt is longer than the text before an answer, it goes on with the turn's first text.
	same := 0
	for same < min(len(prompt), at) && prompt[same] == answered[same] {
		same++
	}
	for _, token := range c.added { // <think> and </think> begin alike
		if from := max(0, same-len(token)+1); from < same {
			if at := strings.Index(prompt[from:], token); at >= 0 && from+at < same {
				same = from + at
			}
		}
	}
	c.opener = prompt[same:]
	if c.style.Format == FormatHarmony {
		for _, token := range []string{returnToken, callToken} {
			id, ok := c.codec.ID(token)
			if !ok {
				return fmt.Errorf("the vocabulary has no token %s, which ends a turn in the format %s", token, FormatHarmony)
			}
			c.ends = append(c.ends, id)
		}
		return errors.Join(c.probeUser(question), c.probeTools(question))
	}
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

// probeUser finds whether a further question leaves the earlier text as it was, also below a system message, which some
// templates write above the last question alone.
func (c *Chat) probeUser(question []Message) error {
	turn, err := c.Reply(Reply{Reasoning: c.firstThought(), Content: "Yes."})
	if err != nil {
		return err
	}
	for _, messages := range [][]Message{question, append([]Message{{Role: System, Content: "Help."}}, question...)} {
		v, _, err := c.Begin(messages, nil)
		if err != nil && messages[0].Role == System {
			continue // it takes no system message
		}
		if err != nil {
			return err
		}
		for range 2 { // the newest answer may keep text that the answer before it loses
			if _, _, err = v.Next(turn, Message{Role: User, Content: "And " + probeWord + "?"}); err != nil {
				return fmt.Errorf("a second question: %w", err)
			}
		}
		if v.Rewritten() > 0 && !slices.Contains(c.rewrites, User) {
			c.rewrites = append(c.rewrites, User)
		}
	}
	return nil
}

// firstThought is the first text of a model that thinks.
func (c *Chat) firstThought() string {
	if c.style.Format == FormatHarmony {
		return "It is."
	}
	if !strings.Contains(c.plain.Source(), "</think>") || strings.Contains(c.opener, "</think>") {
		return ""
	}
	return "It is."
}

// probeTools finds whether a model can be given tools' results.
func (c *Chat) probeTools(question []Message) error {
	name := "look"
	if c.style.Tool != "" {
		name = c.style.Tool
	}
	tools := []Tool{{Name: name, Description: "Looks it up.", Parameters: json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}`)}}
	v, _, err := c.Begin(question, tools)
	if err != nil {
		c.toolFault = fmt.Errorf("the template takes no tools: %w%s", err, c.untoldHint())
		return nil
	}
	if !c.style.Untold && !strings.Contains(v.text, "Looks it up.") {
		c.toolFault = errors.New("the template leaves out which tools there are" + c.untoldHint())
		return nil
	}
	if c.style.Format == FormatNone {
		return nil
	}
	call := Call{Name: name, Arguments: json.RawMessage(`{"word": "it"}`)}
	turn, err := c.Reply(Reply{Reasoning: c.firstThought(), Calls: []Call{call}}, tools...)
	if err != nil {
		return err
	}
	_, fresh, err := v.Next(turn, Message{Role: ToolRole, Name: name, Content: "found-" + probeWord})
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

// untoldHint is what the user can do about a template that leaves out, or refuses, the system message with the tools.
func (c *Chat) untoldHint() string {
	if !c.style.Format.withinTurn() || c.style.Untold {
		return ""
	}
	return "; where it takes no system message, set the agent's instructions to false, and say in the question which tools there are"
}
