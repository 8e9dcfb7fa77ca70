package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/template"
)

// Chat is how a model converses. It is not changed after it is made, and safe for concurrent use.
type Chat struct {
	codec          marked
	plain, tooled  *template.Template // without tools and with them
	vars           map[string]any
	source         Source
	style          Style
	toFirst        bool     // the template names the tool of a harmony call before its channel
	added, special []string // the spellings of added tokens, and of the tokens among them that control the model
	ends           []int32
	opener         string // the part of the turn itself that the generation prompt ends with, such as <think>
	before         int32  // the token that a turn begins behind
	toolFault      error
	rewrites       []string
}

// Stop are the ids that end a turn.
func (c *Chat) Stop() []int32 { return slices.Clone(c.ends) }

// StopText are the spellings of Stop.
func (c *Chat) StopText() []string {
	var out []string
	for _, id := range c.ends {
		out = append(out, c.codec.Token(id))
	}
	return out
}

// Format is how the model writes calls of tools.
func (c *Chat) Format() Format { return c.style.Format }

// Styled is the same template with another way of writing calls.
func (c *Chat) Styled(s Style) (*Chat, error) {
	if err := s.checkReadable(); err != nil {
		return nil, err
	}
	return newStyled(c.source, c.codec, s)
}

// Pauses are the texts at which a turn that may call these tools pauses for their results, in the formats tag, code and fence;
// none in others.
func (c *Chat) Pauses(tools []Tool) []string { return c.style.pauseTexts(tools) }

// Tools is nil where the model can call tools and read their results, else the reason why not.
func (c *Chat) Tools() error {
	switch {
	case c.toolFault != nil:
		return c.toolFault
	case c.style.Format == FormatNone:
		return errors.New("the template shows no format of tool calls that is known: want <tool_call>{json}</tool_call> as Qwen and Hermes have it, Llama 3's JSON, <function=name> as Qwen3-Coder has it, or gpt-oss's channels; the formats tag, code and fence need none of the template")
	}
	return nil
}

// Rewrites lists the roles of messages after which the template writes earlier turns in another way than before, so that a
// conversation goes on as a new context: none, "tool" or "user", or both.
func (c *Chat) Rewrites() []string { return slices.Clone(c.rewrites) }

// Prompt is the whole of a conversation up to where the assistant's turn begins.
func (c *Chat) Prompt(messages []Message, tools []Tool) ([]int32, error) {
	text, mark, err := c.renderText(messages, tools, true)
	if err != nil {
		return nil, err
	}
	return c.codec.EncodeMarked(text, mark), nil
}

// Turn are the ids of an assistant's turn with the token that ends it, as the model would sample them. Tokens of its format in
// the text, such as <tool_call>, become their ids; tokens that control the model do not. In FormatHarmony the text is the
// answer's, and a call is written by [Chat.Reply].
func (c *Chat) Turn(content string) ([]int32, error) {
	if c.style.Format == FormatHarmony {
		return c.Reply(Reply{Content: content})
	}
	return append(c.textIDs(content), c.ends[0]), nil
}

// Reply are the ids of a turn with thoughts, text and calls, as the model would sample them, with the token that ends it. In
// the formats tag, code and fence nothing follows a call.
func (c *Chat) Reply(r Reply, tools ...Tool) ([]int32, error) {
	if c.style.Format == FormatHarmony {
		mark := markFor(r.Reasoning, r.Content, c.Write(r.Calls))
		text := c.harmonyTurn(r, func(s string) string { return guardSpellings(c.codec.Normalized(s), c.special, mark) })
		return c.codec.EncodeMarked(text, mark), nil
	}
	text := r.Content
	if len(r.Calls) > 0 {
		if text != "" {
			text += "\n"
		}
		text += c.Write(r.Calls, tools...)
	}
	if r.Reasoning != "" && c.hasThoughts() {
		text = "<think>\n" + r.Reasoning + "\n</think>\n\n" + text
	}
	if len(r.Calls) > 0 && c.style.Format.withinTurn() {
		return c.textIDs(text), nil
	}
	return c.Turn(text)
}

// BeginCall are the ids that begin a call, for a turn that is held to a call: the policy goes on behind them. It fails where calls of the
// model's format begin with no token of their own, and where the model thinks before it calls.
func (c *Chat) BeginCall() ([]int32, error) {
	if f := c.style.Format; f != FormatHermes && f != FormatQwen3Coder {
		return nil, fmt.Errorf("format %q: its calls begin with no token of their own", f)
	}
	if c.hasThoughts() && !strings.Contains(c.opener, closeThink) {
		return nil, errors.New("the model thinks before it calls")
	}
	ids := c.textIDs(openCall)
	if len(ids) != 1 {
		return nil, fmt.Errorf("%s is %d tokens of the model: want a token of its own", openCall, len(ids))
	}
	return ids, nil
}

// textIDs are the ids of an assistant's text.
func (c *Chat) textIDs(text string) []int32 {
	mark := markFor(text)
	text = strings.TrimPrefix(text, c.opener)
	return c.codec.EncodeBehind(c.before, guardSpellings(c.codec.Normalized(text), c.special, mark), mark)
}

// The characters that may mark a text: Unicode reserves them for such use, and a template's tojson lets them through.
const (
	firstMark = 0xfdd0
	lastMark  = 0xfdef
)

// markFor is a character that none of the texts holds. If they hold all candidates it is the last, which [guard] takes out.
func markFor(texts ...string) rune {
	for mark := rune(firstMark); mark < lastMark; mark++ {
		if !slices.ContainsFunc(texts, func(s string) bool { return strings.ContainsRune(s, mark) }) {
			return mark
		}
	}
	return lastMark
}

// withoutMark is a text with U+FFFD in the place of each mark that stands in it.
func withoutMark(text string, mark rune) string {
	return strings.ReplaceAll(text, string(mark), "\ufffd")
}

// guardSpellings puts the mark into each spelling in a text, so that no spelling is left. The mark stands nowhere else in the
// result.
func guardSpellings(text string, spellings []string, mark rune) string {
	text = withoutMark(text, mark)
	for _, s := range spellings {
		first := 1
		for first < len(s) && s[first]&0xc0 == 0x80 {
			first++
		}
		if first == len(s) {
			continue // a spelling of a single character stays a token
		}
		for strings.Contains(text, s) { // again where spellings overlap, as "||" does in "|||"
			text = strings.ReplaceAll(text, s, s[:first]+string(mark)+s[first:])
		}
	}
	return text
}

// renderText is the text of a conversation, with marks in each spelling that must not become a control token.
func (c *Chat) renderText(messages []Message, tools []Tool, prompt bool) (string, rune, error) {
	if c.style.Format.withinTurn() {
		messages, tools = c.templateMessages(messages, tools), nil
	}
	var texts []string
	for i, m := range messages {
		if !slices.Contains(Roles(), m.Role) {
			return "", 0, fmt.Errorf("message %d: role %q: want one of %s", i, m.Role, strings.Join(Roles(), ", "))
		}
		texts = append(texts, m.Content, m.Reasoning, m.Name, m.CallID)
		for _, call := range m.Calls {
			texts = append(texts, call.ID, call.Name, string(call.Arguments))
		}
	}
	for _, t := range tools {
		texts = append(texts, t.Name, t.Description, string(t.Parameters))
	}
	mark := markFor(texts...)
	// The assistant's own turns, and the system message, may hold tokens of the format.
	guarded := func(role, text string) string {
		text = c.codec.Normalized(text)
		if role == System || role == Assistant {
			return guardSpellings(text, c.special, mark)
		}
		return guardSpellings(text, c.added, mark)
	}
	data := template.Data{AddGenerationPrompt: prompt, More: c.vars}
	var err error
	if data.Messages, err = messagesJSON(messages, guarded); err != nil {
		return "", 0, err
	}
	if data.Tools, err = toolsJSON(tools, guarded); err != nil {
		return "", 0, err
	}
	tpl := c.plain
	if len(tools) > 0 {
		tpl = c.tooled
	}
	text, err := tpl.Render(data)
	return text, mark, err
}
