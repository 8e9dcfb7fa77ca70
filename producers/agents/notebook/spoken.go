package notebook

import (
	"fmt"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
)

// spoken is the notation of a model with a chat template: the question is a message of the user's, a turn of the policy is the assistant's
// with a cell in a fence or in <code> tags, and an output is the user's next message.
type spoken struct {
	chat   *chat.Chat
	system string
	fence  string
}

func newSpoken(cfg Config, c *chat.Chat) (*spoken, error) {
	s := &spoken{chat: c, system: cfg.System, fence: "```" + cfg.Language}
	if s.system == "" {
		s.system = fmt.Sprintf(systemText, s.fence)
	}
	_, _, err := s.openPage(&page{question: "?", turns: []turn{{output: "?"}}}) // such as a system message that the template does not take
	return s, err
}

// systemText says how a notebook works.
const systemText = "Solve the task by writing code. In each turn think first, and then write one cell of code:\n%s\n...\n```\n" +
	"What the cell prints and the value of its last expression are shown to you as <output>. Variables stay from cell to cell. Keep what you must " +
	"not forget in the notepad: notepad.add_facts(...), notepad.add_todo(...). When you know the answer call submit(answer) in a cell."

// conversation is a context that goes on.
type conversation struct{ talk *chat.Conversation }

func (s *spoken) openPage(p *page) (writing, []int32, error) {
	question := p.question
	if p.notes != "" {
		question += "\n\n<notes>\n" + p.notes + "\n</notes>"
	}
	if p.summary != "" {
		question += "\n\n<summary>\n" + p.summary + "\n</summary>"
	}
	messages := []chat.Message{{Role: chat.System, Content: s.system}, {Role: chat.User, Content: question}}
	for _, said := range p.turns {
		if said.sampled == nil { // an output by itself is the question's: two messages of the user's in a row are refused by many templates
			messages[1].Content += "\n\n" + outputMessage(said.output)
			continue
		}
		text, _ := s.turnContent(said.sampled)
		messages = append(messages, chat.Message{Role: chat.Assistant, Content: text}, chat.Message{Role: chat.User, Content: outputMessage(said.output)})
	}
	talk, ids, err := s.chat.Begin(messages, nil)
	if err != nil {
		return nil, nil, err
	}
	return conversation{talk}, ids, nil
}

// outputMessage returns an output as a message.
func outputMessage(output string) string { return "<output>\n" + output + "\n</output>" }

func (c conversation) showOutput(last turn) (step, error) {
	return c.addUserMessage(last, outputMessage(last.output))
}

func (c conversation) askSummary(last turn) (step, error) {
	return c.addUserMessage(last, summaryRequest)
}

// addUserMessage continues with a message of the user's.
func (c conversation) addUserMessage(last turn, text string) (step, error) {
	talk := c.talk.Clone()
	ids, fresh, err := talk.Next(last.sampled, chat.Message{Role: chat.User, Content: text})
	return step{ids, fresh, conversation{talk}}, err
}

func (s *spoken) turnOptions(most int) producers.GenerateOptions {
	return producers.GenerateOptions{Stop: s.chat.Stop(), MaxTokens: most}
}

// turnContent returns a turn's text, and whether it came to its end.
func (s *spoken) turnContent(sampled []int32) (string, bool) {
	reply, ended := s.chat.ParseIDs(sampled)
	return reply.Content, ended
}

// readCell takes the only cell of a turn. A cell whose fence is closed counts even where the turn was cut after it.
func (s *spoken) readCell(sampled []int32, _ bool) (cell, fault string) {
	text, ended := s.turnContent(sampled)
	cells, open := cellsOf(text)
	switch {
	case len(cells) > 1:
		return "", severalCells
	case len(cells) == 1 && !open:
		return cells[0], ""
	case open || !ended:
		return "", cutCell
	}
	return "", noCell
}

// cellsOf are the cells of a text: the text between ``` or ```language and ```, and between <code> and </code>. open says that the last is
// not closed.
func cellsOf(text string) (cells []string, open bool) {
	for {
		fence, tag := strings.Index(text, "```"), strings.Index(text, "<"+codeTag+">")
		var body, end string
		switch {
		case fence < 0 && tag < 0:
			return cells, false
		case tag >= 0 && (fence < 0 || tag < fence):
			body, end = text[tag+len(codeTag)+2:], "</"+codeTag+">"
		default:
			_, body, _ = strings.Cut(text[fence+3:], "\n") // the language stands behind the fence
			end = "```"
		}
		cell, rest, closed := strings.Cut(body, end)
		if !closed {
			return cells, true
		}
		cells, text = append(cells, strings.Trim(cell, "\n")), rest
	}
}

func (s *spoken) summaryPrompt() int { return len(summaryRequest) / 2 }

func (s *spoken) summaryOptions(most int) producers.GenerateOptions { return s.turnOptions(most) }

func (s *spoken) readSummary(sampled []int32) string {
	text, _ := s.turnContent(sampled)
	return text
}

func (s *spoken) messageFormat() producers.Format { return producers.Format{Stop: s.chat.StopText()} }

func (s *spoken) encodeCell(code string) ([]int32, error) {
	return s.chat.Turn(s.fence + "\n" + code + "\n```")
}

func (s *spoken) encodeSummary(text string) ([]int32, error) { return s.chat.Turn(text) }
