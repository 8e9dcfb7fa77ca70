package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Agent is a producers.Agent; it keeps nothing between episodes.
type Agent struct {
	cfg   Config
	chat  *chat.Chat
	specs []producers.ToolSpec
	tools []chat.Tool
}

// New makes the agent. Tools that the template cannot show, or whose answers it cannot, are refused.
func New(cfg Config, c *chat.Chat, specs []producers.ToolSpec) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	a := &Agent{cfg: cfg, chat: c, specs: slices.Clone(specs)}
	for _, s := range specs {
		a.tools = append(a.tools, describeTool(s))
	}
	if err := cfg.checkTools(a.tools); err != nil {
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	if err := c.Tools(); err != nil && len(specs) > 0 {
		return nil, fmt.Errorf("chat agent: tools %s: %w", toolNames(specs), err)
	}
	if _, err := c.Prompt(a.promptMessages(schemas.Prompt{Text: "?"}), a.tools); err != nil { // such as a system message that the template does not take
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	return a, nil
}

// queryKey is the argument of a tool that takes free text.
const queryKey = "query"

// freeText is the schema of such a tool.
const freeText = `{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}`

// describeTool returns a tool as a template shows it.
func describeTool(s producers.ToolSpec) chat.Tool {
	t := chat.Tool{Name: s.Name, Description: s.Description, Parameters: s.Parameters}
	if t.Parameters == nil {
		t.Parameters = json.RawMessage(freeText)
	}
	return t
}

// toolNames lists the names of tools.
func toolNames(specs []producers.ToolSpec) string {
	var out []string
	for _, s := range specs {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}

// promptMessages returns the messages that begin an episode: the messages of a prompt that is a conversation, under the agent's own system
// message unless the prompt has one, else the question.
func (a *Agent) promptMessages(p schemas.Prompt) []chat.Message {
	var own []chat.Message
	if text := p.Meta[tasks.MetaMessages]; text == "" || json.Unmarshal([]byte(text), &own) != nil || len(own) == 0 {
		own = []chat.Message{{Role: chat.User, Content: p.Text}}
	}
	if a.cfg.System == "" || own[0].Role == chat.System {
		return own
	}
	return slices.Insert(own, 0, chat.Message{Role: chat.System, Content: a.cfg.System})
}

// Opening are the tokens that each episode of a prompt begins with; none for a question that the template refuses.
func (a *Agent) Opening(p schemas.Prompt) []int32 {
	ids, err := a.chat.Prompt(a.promptMessages(p), a.tools)
	if err != nil {
		return nil // the episode fails and tells
	}
	return ids
}

// Format says where a turn of the policy ends.
func (a *Agent) Format() producers.Format { return producers.Format{Stop: a.chat.StopText()} }

// Chat is the template that the agent speaks.
func (a *Agent) Chat() *chat.Chat { return a.chat }

// Run drives an episode: turns that call tools, then a turn that answers.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	talk, ids, err := a.Begin(e.Prompt(), len(e.Tools()) > 0)
	if err != nil {
		return err
	}
	c, err := e.Open("", ids)
	if err != nil {
		return err
	}
	answer, stop, err := talk.Drive(ctx, c)
	if err != nil {
		return err
	}
	e.Finish(answer, stop)
	return nil
}

// Talk is a conversation in a context of an episode.
type Talk struct {
	agent *Agent
	talk  *chat.Conversation
	tools []chat.Tool
}

// Begin is a conversation about a prompt, and the tokens that its context begins with; without calls it is shown no tools.
func (a *Agent) Begin(p schemas.Prompt, calls bool) (*Talk, []int32, error) {
	t := &Talk{agent: a}
	if calls {
		t.tools = a.tools
	}
	var ids []int32
	var err error
	t.talk, ids, err = a.chat.Begin(a.promptMessages(p), t.tools)
	return t, ids, err
}

// Drive drives the conversation's context to its answer. Where there is none the answer is "" and stop says why; a tool that ends the
// episode is such a stop.
func (t *Talk) Drive(ctx context.Context, c *producers.Context) (answer string, stop schemas.StopReason, err error) {
	a := t.agent
	options := producers.GenerateOptions{Stop: a.chat.Stop(), StopTexts: a.chat.Pauses(t.tools)}
	for invalid := 0; ; {
		sampled, _, err := c.Generate(ctx, options)
		if err != nil {
			return "", "", err
		}
		reply, ended := t.talk.Read(sampled)
		if !ended {
			return "", stopUnended(c), nil
		}
		if len(reply.Calls) == 0 && reply.Fault == "" {
			answer, stop = a.readAnswer(reply)
			return answer, stop, nil
		}
		if reply.Fault != "" {
			invalid++
		}
		if invalid >= a.cfg.MaxInvalid {
			return "", schemas.StopFormat, nil
		}
		said, done, err := a.makeCalls(ctx, c, reply)
		if err != nil || done {
			return "", schemas.StopTool, err
		}
		if err := showResults(c, t.talk, sampled, said); err != nil {
			return "", "", err
		}
	}
}

// stopUnended returns why a turn without its end ends the episode: the token limit, or a bound on the tokens of a turn.
func stopUnended(c *producers.Context) schemas.StopReason {
	if c.Room() == 0 {
		return schemas.StopTokens
	}
	return schemas.StopFormat
}

// readAnswer takes the answer out of the last turn.
func (a *Agent) readAnswer(reply chat.Reply) (string, schemas.StopReason) {
	answer := reply.Content
	if tag := a.cfg.AnswerTag; tag != "" {
		at := strings.LastIndex(answer, "<"+tag+">")
		if at < 0 {
			return "", schemas.StopFormat
		}
		answer, _, _ = strings.Cut(answer[at+len(tag)+2:], "</"+tag+">")
		answer = strings.TrimSpace(answer)
	}
	if answer == "" {
		return "", schemas.StopFormat
	}
	return answer, schemas.StopAnswer
}

// makeCalls makes the calls of a turn and returns the results as messages; done means that a tool ended the episode.
func (a *Agent) makeCalls(ctx context.Context, c *producers.Context, reply chat.Reply) (said []chat.Message, done bool, err error) {
	tell := func(name, text string) {
		said = append(said, chat.Message{Role: chat.ToolRole, Name: name, Content: text})
	}
	for i, call := range reply.Calls {
		if i == a.cfg.CallsPerTurn {
			tell(call.Name, fmt.Sprintf("error: not called: at most %d calls in one turn", i))
			break
		}
		arguments, err := a.toolArguments(call)
		if err != nil {
			tell(call.Name, "error: "+err.Error())
			continue
		}
		observation, err := c.Call(ctx, call.Name, arguments)
		if err != nil {
			return nil, false, err
		}
		if observation.Done {
			return nil, true, nil
		}
		tell(call.Name, observation.Text)
	}
	if reply.Fault != "" {
		tell("", "error: "+reply.Fault)
	}
	return said, false, nil
}

// toolArguments returns a call's arguments as the tool takes them: the text of query where it takes free text.
func (a *Agent) toolArguments(call chat.Call) (string, error) {
	for _, s := range a.specs {
		if s.Name != call.Name || s.Parameters != nil {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(call.Arguments, &fields); err != nil {
			return "", err
		}
		text, ok := fields[queryKey].(string)
		if !ok || len(fields) != 1 {
			return "", fmt.Errorf("the arguments of %s must be {%q: a text}", call.Name, queryKey)
		}
		return text, nil
	}
	return string(call.Arguments), nil
}

// showResults puts messages into the context, which begins anew where the template now writes the earlier turns otherwise.
func showResults(c *producers.Context, talk *chat.Conversation, sampled []int32, said []chat.Message) error {
	ids, fresh, err := talk.Next(sampled, said...)
	if err != nil {
		return agents.Unwritten()
	}
	if fresh {
		return c.Begin(ids)
	}
	return c.Observe(ids)
}

// Demonstrate writes a demonstration as an episode of the agent's would have been.
func (a *Agent) Demonstrate(d tasks.Demonstration) (tokens []int32, mask []uint8, err error) {
	write := func(ids []int32, acts uint8) {
		tokens = append(tokens, ids...)
		mask = append(mask, slices.Repeat([]uint8{acts}, len(ids))...)
	}
	asked := schemas.Prompt{Text: d.Question}
	if len(d.Messages) > 0 {
		text, err := json.Marshal(d.Messages)
		if err != nil {
			return nil, nil, err
		}
		asked.Meta = map[string]string{tasks.MetaMessages: string(text)}
	}
	talk, ids, err := a.chat.Begin(a.promptMessages(asked), a.tools)
	if err != nil {
		return nil, nil, err
	}
	write(ids, 0)
	for i, step := range d.Steps {
		call, err := a.stepCall(step)
		if err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		turn, err := a.chat.Reply(chat.Reply{Calls: []chat.Call{call}}, a.tools...)
		if err != nil {
			return nil, nil, err
		}
		write(turn, 1)
		if d.Answer == "" && i == len(d.Steps)-1 {
			return tokens, mask, nil // the call ends the episode
		}
		ids, fresh, err := talk.Next(turn, chat.Message{Role: chat.ToolRole, Name: call.Name, Content: step.Result})
		if err != nil {
			return nil, nil, err
		}
		if fresh {
			return nil, nil, errors.New("the chat template writes earlier turns anew after a tool's message: a demonstration would not be one context")
		}
		write(ids, 0)
	}
	answer := d.Answer
	if tag := a.cfg.AnswerTag; tag != "" {
		answer = "<" + tag + ">" + answer + "</" + tag + ">"
	}
	turn, err := a.chat.Turn(answer)
	if err != nil {
		return nil, nil, err
	}
	write(turn, 1)
	return tokens, mask, nil
}

// stepCall returns a step as a call.
func (a *Agent) stepCall(step tasks.Step) (chat.Call, error) {
	if len(a.specs) == 0 {
		return chat.Call{}, errors.New("the task has no tool to call")
	}
	spec := a.specs[0]
	if step.Tool != "" {
		at := slices.IndexFunc(a.specs, func(s producers.ToolSpec) bool { return s.Name == step.Tool })
		if at < 0 {
			return chat.Call{}, fmt.Errorf("tool %q: the task has %s", step.Tool, toolNames(a.specs))
		}
		spec = a.specs[at]
	}
	call := chat.Call{Name: spec.Name, Arguments: json.RawMessage(step.Arguments)}
	if spec.Parameters == nil {
		arguments, err := json.Marshal(map[string]string{queryKey: step.Arguments})
		if err != nil {
			return chat.Call{}, err
		}
		call.Arguments = arguments
		return call, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(call.Arguments, &fields); err != nil || fields == nil {
		return chat.Call{}, fmt.Errorf("tool %s takes a JSON object: give the step \"arguments\" in place of \"search\"", spec.Name)
	}
	return call, nil
}
