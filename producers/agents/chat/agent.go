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
		a.tools = append(a.tools, described(s))
	}
	if err := c.Tools(); err != nil && len(specs) > 0 {
		return nil, fmt.Errorf("chat agent: tools %s: %w", names(specs), err)
	}
	if _, err := c.Prompt(a.messages("?"), a.tools); err != nil { // such as a system message that the template does not take
		return nil, fmt.Errorf("chat agent: %w", err)
	}
	return a, nil
}

// queryKey is the argument of a tool that takes free text.
const queryKey = "query"

// freeText is the schema of such a tool.
const freeText = `{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}`

func described(s producers.ToolSpec) chat.Tool {
	t := chat.Tool{Name: s.Name, Description: s.Description, Parameters: s.Parameters}
	if t.Parameters == nil {
		t.Parameters = json.RawMessage(freeText)
	}
	return t
}

func names(specs []producers.ToolSpec) string {
	var out []string
	for _, s := range specs {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}

// messages begin an episode.
func (a *Agent) messages(question string) []chat.Message {
	var out []chat.Message
	if a.cfg.System != "" {
		out = append(out, chat.Message{Role: chat.System, Content: a.cfg.System})
	}
	return append(out, chat.Message{Role: chat.User, Content: question})
}

// Opening are the tokens that each episode of a prompt begins with; none for a question that the template refuses.
func (a *Agent) Opening(p schemas.Prompt) []int32 {
	ids, err := a.chat.Prompt(a.messages(p.Text), a.tools)
	if err != nil {
		return nil // the episode fails and tells
	}
	return ids
}

// Format says where a turn of the policy ends.
func (a *Agent) Format() producers.Format { return producers.Format{Stop: a.chat.StopText()} }

// Chat is the template that the agent speaks.
func (a *Agent) Chat() *chat.Chat { return a.chat }

// Run drives one episode: turns that call tools, then one that answers.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	tools := a.tools
	if len(e.Tools()) == 0 {
		tools = nil // it may call none
	}
	talk, ids, err := a.chat.Begin(a.messages(e.Prompt().Text), tools)
	if err != nil {
		return err
	}
	if err := e.Begin(ids); err != nil {
		return err
	}
	stop := a.chat.Stop()
	for invalid := 0; ; {
		sampled, _, err := e.Generate(ctx, producers.GenerateOptions{Stop: stop})
		if err != nil {
			return err
		}
		reply, ended := a.chat.ParseIDs(sampled)
		if !ended {
			e.Finish("", unended(e))
			return nil
		}
		if len(reply.Calls) == 0 && reply.Fault == "" {
			a.finish(e, reply)
			return nil
		}
		if reply.Fault != "" {
			invalid++
		}
		if invalid >= a.cfg.MaxInvalid {
			e.Finish("", schemas.StopFormat)
			return nil
		}
		said, done, err := a.call(ctx, e, reply)
		if err != nil {
			return err
		}
		if done {
			e.Finish("", schemas.StopAnswer)
			return nil
		}
		if err := show(e, talk, sampled, said); err != nil {
			return err
		}
	}
}

// unended is why a turn without its end ends the episode: the token limit, or a bound on the tokens of one turn.
func unended(e *producers.Episode) schemas.StopReason {
	if e.Room() == 0 {
		return schemas.StopTokens
	}
	return schemas.StopFormat
}

// finish takes the answer out of the last turn.
func (a *Agent) finish(e *producers.Episode, reply chat.Reply) {
	answer := reply.Content
	if tag := a.cfg.AnswerTag; tag != "" {
		at := strings.LastIndex(answer, "<"+tag+">")
		if at < 0 {
			e.Finish("", schemas.StopFormat)
			return
		}
		answer, _, _ = strings.Cut(answer[at+len(tag)+2:], "</"+tag+">")
		answer = strings.TrimSpace(answer)
	}
	if answer == "" {
		e.Finish("", schemas.StopFormat)
		return
	}
	e.Finish(answer, schemas.StopAnswer)
}

// call makes the calls of a turn and returns what there is to say of them; done says that a tool ended the episode.
func (a *Agent) call(ctx context.Context, e *producers.Episode, reply chat.Reply) (said []chat.Message, done bool, err error) {
	tell := func(name, text string) {
		said = append(said, chat.Message{Role: chat.ToolRole, Name: name, Content: text})
	}
	for i, call := range reply.Calls {
		if i == a.cfg.CallsPerTurn {
			tell(call.Name, fmt.Sprintf("error: not called: at most %d calls in one turn", i))
			break
		}
		arguments, err := a.arguments(call)
		if err != nil {
			tell(call.Name, "error: "+err.Error())
			continue
		}
		observation, err := e.Call(ctx, call.Name, arguments)
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

// arguments are a call's as the tool takes them: the text of query where it takes free text.
func (a *Agent) arguments(call chat.Call) (string, error) {
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

// show puts what was said into the context, which begins anew where the template writes the earlier turns otherwise now.
func show(e *producers.Episode, talk *chat.Conversation, sampled []int32, said []chat.Message) error {
	ids, fresh, err := talk.Next(sampled, said...)
	if err != nil {
		return err
	}
	if fresh {
		return e.Begin(ids)
	}
	return e.Observe(ids)
}

// Demonstrate writes a demonstration as an episode of the agent's would have been.
func (a *Agent) Demonstrate(d tasks.Demonstration) (tokens []int32, mask []uint8, err error) {
	write := func(ids []int32, acts uint8) {
		tokens = append(tokens, ids...)
		mask = append(mask, slices.Repeat([]uint8{acts}, len(ids))...)
	}
	talk, ids, err := a.chat.Begin(a.messages(d.Question), a.tools)
	if err != nil {
		return nil, nil, err
	}
	write(ids, 0)
	for i, step := range d.Steps {
		call, err := a.demonstrated(step)
		if err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		turn, err := a.chat.Turn(a.chat.Format().Write([]chat.Call{call}))
		if err != nil {
			return nil, nil, err
		}
		write(turn, 1)
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

// demonstrated is a step as a call.
func (a *Agent) demonstrated(step tasks.Step) (chat.Call, error) {
	if len(a.specs) == 0 {
		return chat.Call{}, errors.New("the task has no tool to call")
	}
	spec := a.specs[0]
	if step.Tool != "" {
		at := slices.IndexFunc(a.specs, func(s producers.ToolSpec) bool { return s.Name == step.Tool })
		if at < 0 {
			return chat.Call{}, fmt.Errorf("tool %q: the task has %s", step.Tool, names(a.specs))
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
