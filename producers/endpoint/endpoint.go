// Package endpoint runs episodes with a model behind an OpenAI-compatible endpoint, for evaluations: messages in, messages and calls of
// tools out. No token ids come back, so nothing of such an episode can be trained on.
package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Config names the endpoint.
type Config struct {
	remote.Config
	// Model is the name that the endpoint serves it by; needed.
	Model string
	// System is put before a prompt that has no system message; "" is none.
	System string
	// MaxTokens bounds an answer in tokens, > 0.
	MaxTokens int
	// AnswerTag is the tag that the answer stands in; "" takes the whole of the last message.
	AnswerTag string
}

// DefaultConfig waits ten minutes for an answer of up to 1024 tokens.
func DefaultConfig() Config {
	cfg := Config{Config: remote.DefaultConfig(), MaxTokens: 1024}
	cfg.AttemptTimeout, cfg.MaxBytes, cfg.Concurrency = 10*time.Minute, 16<<20, 256
	return cfg
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(c.Config.Validate(), check.Given("model", c.Model, "name the model that the endpoint serves"), check.Positive("max_tokens", c.MaxTokens))
}

// Endpoint asks a model.
type Endpoint struct {
	cfg    Config
	client *remote.Client
}

// New makes an endpoint of its base address, which ends in /v1; nothing is sent yet.
func New(cfg Config) (*Endpoint, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.URL = strings.TrimSuffix(cfg.URL, "/") + "/chat/completions"
	client, err := remote.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Endpoint{cfg, client}, nil
}

// Close lets go of idle connections.
func (e *Endpoint) Close() { e.client.Close() }

// String is the endpoint's address.
func (e *Endpoint) String() string { return e.client.String() }

// Roll runs episodes with the tools and the reward of an environment, of which the policy, the tokenizer and the agent are not used.
func (e *Endpoint) Roll(env producers.Environment) producers.Roll {
	return func(ctx context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
		a := &episode{Endpoint: e, env: env, ticket: ticket, started: time.Now().UTC(), transcript: &producers.Transcript{Prompt: ticket.Prompt.Text}}
		defer a.closeSessions(ctx)
		return a.runEpisode(ctx)
	}
}

// message is a message of the API.
type message struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCalls  []call  `json:"tool_calls,omitempty"`
	ToolCallID string  `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type request struct {
	Model       string    `json:"model"`
	Messages    []message `json:"messages"`
	Tools       []any     `json:"tools,omitempty"`
	Temperature float32   `json:"temperature"`
	MaxTokens   int       `json:"max_tokens"`
	Seed        uint64    `json:"seed"`
}

type answer struct {
	Choices []struct {
		Message      message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

// episode is a running episode.
type episode struct {
	*Endpoint
	env        producers.Environment
	ticket     *schemas.Ticket
	started    time.Time
	messages   []message
	transcript *producers.Transcript
	opened     []producers.SessionTool
	calls      int
}

// errTimedOut is the cause of an episode's end by its time limit.
var errTimedOut = errors.New("the episode's time limit")

// runEpisode runs the episode to its end.
func (a *episode) runEpisode(ctx context.Context) (*schemas.Trajectory, *producers.Transcript, error) {
	end, err := a.openInTime(ctx)
	defer end()
	if err != nil {
		return nil, nil, cmp.Or(context.Cause(ctx), err)
	}
	running, cancel := a.limitTime(ctx)
	defer cancel()
	err = a.runTurns(running)
	switch {
	case context.Cause(ctx) != nil:
		return nil, nil, context.Cause(ctx)
	case err != nil && errors.Is(context.Cause(running), errTimedOut) && len(a.transcript.Turns) > 0:
		a.transcript.Stop, a.transcript.Answer = schemas.StopTimeout, ""
	case err != nil:
		return nil, nil, err
	}
	for _, tool := range a.opened {
		if w, ok := tool.(producers.Workspaced); ok {
			if space, ok := w.Workspace(a.ticket.ID); ok {
				a.transcript.Workspace = space
			}
		}
	}
	score, err := a.env.Reward.Score(ctx, a.ticket, a.transcript)
	a.transcript.Workspace = nil
	if err != nil {
		return nil, nil, fmt.Errorf("score the rollout: %w", err)
	}
	t := a.ticket
	return &schemas.Trajectory{
		Run: t.Run, ID: t.ID, Group: t.Group, Cursor: t.Cursor, Sample: t.Sample, GroupSize: t.GroupSize, Task: t.Task, PromptID: t.Prompt.ID,
		Source: t.Prompt.Source, Reward: score.Total, Rewards: score.Components, Answer: a.transcript.Answer, Stop: a.transcript.Stop,
		StartedAt: a.started, FinishedAt: time.Now().UTC(),
	}, a.transcript, nil
}

// openInTime opens the sessions. The wait for them is bounded by the episode's time limit, and no part of its time. The caller
// calls end when the episode has ended.
func (a *episode) openInTime(ctx context.Context) (end func(), err error) {
	opening, cancel := context.WithCancelCause(ctx)
	if limit := a.ticket.Limits.Timeout; limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errTimedOut) })
		defer timer.Stop() // a session may live by the context that it was opened with
	}
	err = a.openSessions(opening)
	a.started = time.Now().UTC()
	return func() { cancel(nil) }, err
}

// limitTime bounds a context by the episode's time limit.
func (a *episode) limitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if timeout := a.ticket.Limits.Timeout; timeout > 0 {
		return context.WithTimeoutCause(ctx, timeout, errTimedOut)
	}
	return ctx, func() {}
}

// runTurns asks until the model answers, or a limit is reached.
func (a *episode) runTurns(ctx context.Context) error {
	a.writePrompt()
	for {
		got, stop, err := a.askModel(ctx)
		if err != nil {
			return err
		}
		content := ""
		if got.Content != nil {
			content = *got.Content
		}
		a.notifyMove(producers.Move{Kind: producers.MovePolicy, Text: content})
		turn := producers.TranscriptTurn{Text: content}
		a.transcript.Text += content + "\n"
		if len(got.ToolCalls) == 0 {
			a.transcript.Turns = append(a.transcript.Turns, turn)
			a.finishWith(content, stop)
			return nil
		}
		got.Role = "assistant"
		a.messages = append(a.messages, got)
		done, err := a.makeCalls(ctx, got.ToolCalls, &turn)
		a.transcript.Turns = append(a.transcript.Turns, turn)
		if err != nil || done {
			return err
		}
	}
}

// writePrompt writes the first messages.
func (a *episode) writePrompt() {
	text := func(s string) *string { return &s }
	var own []tasks.Message
	if m := a.ticket.Prompt.Meta[tasks.MetaMessages]; m == "" || json.Unmarshal([]byte(m), &own) != nil || len(own) == 0 {
		own = []tasks.Message{{Role: "user", Content: a.ticket.Prompt.Text}}
	}
	if a.cfg.System != "" && own[0].Role != "system" {
		a.messages = append(a.messages, message{Role: "system", Content: text(a.cfg.System)})
	}
	for _, m := range own {
		a.notifyMove(producers.Move{Kind: producers.MovePrompt, Text: m.Content})
		a.messages = append(a.messages, message{Role: m.Role, Content: text(m.Content)})
	}
}

// notifyMove tells the episode's watcher of a move.
func (a *episode) notifyMove(m producers.Move) {
	if a.env.Watch != nil {
		a.env.Watch(m)
	}
}

// askModel asks the model for its next message.
func (a *episode) askModel(ctx context.Context) (message, string, error) {
	body := request{
		Model: a.cfg.Model, Messages: a.messages, Temperature: a.ticket.Sampling.Temperature, MaxTokens: a.cfg.MaxTokens, Seed: a.ticket.Seed >> 12,
	}
	if a.ticket.Limits.MaxTurns > 0 {
		for _, tool := range a.env.Tools {
			body.Tools = append(body.Tools, toolSchema(tool.Spec()))
		}
	}
	var out answer
	err := a.client.Post(ctx, fmt.Sprintf("%s/%s/%d", a.ticket.Run, a.ticket.ID, len(a.messages)), body, func(data []byte) error {
		out = answer{}
		if err := json.Unmarshal(data, &out); err != nil {
			return err
		}
		if len(out.Choices) == 0 {
			return errors.New("choices: none")
		}
		return nil
	})
	if err != nil {
		return message{}, "", fmt.Errorf("ask the model: %w", err)
	}
	a.transcript.Sampled += out.Usage.CompletionTokens
	return out.Choices[0].Message, out.Choices[0].FinishReason, nil
}

// queryKey is the argument of a tool that takes free text.
const queryKey = "query"

// toolSchema returns a tool as the chat API describes it.
func toolSchema(s producers.ToolSpec) any {
	parameters := s.Parameters
	if parameters == nil {
		parameters = json.RawMessage(`{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}`)
	}
	return map[string]any{"type": "function", "function": map[string]any{"name": s.Name, "description": s.Description, "parameters": parameters}}
}

// finishWith takes the answer out of the last message.
func (a *episode) finishWith(content, stop string) {
	a.transcript.Stop = schemas.StopAnswer
	if stop == "length" {
		a.transcript.Stop = schemas.StopTokens
		return
	}
	if tag := a.cfg.AnswerTag; tag != "" {
		at := strings.LastIndex(content, "<"+tag+">")
		if at < 0 {
			a.transcript.Stop = schemas.StopFormat
			return
		}
		content, _, _ = strings.Cut(content[at+len(tag)+2:], "</"+tag+">")
	}
	if a.transcript.Answer = strings.TrimSpace(content); a.transcript.Answer == "" {
		a.transcript.Stop = schemas.StopFormat
	}
}

// makeCalls makes the calls of a message; done means that the episode is over.
func (a *episode) makeCalls(ctx context.Context, calls []call, turn *producers.TranscriptTurn) (done bool, err error) {
	var names, arguments, said []string
	for _, c := range calls {
		if a.calls == a.ticket.Limits.MaxTurns {
			a.transcript.Stop = schemas.StopTurns
			done = true
			break
		}
		move := producers.Move{Kind: producers.MoveTool, Text: c.Function.Arguments, Tool: c.Function.Name, Call: a.calls}
		a.notifyMove(move)
		start := time.Now()
		observation, err := a.makeCall(ctx, c)
		if errors.Is(err, producers.ErrUnavailable) || err != nil && ctx.Err() != nil {
			return true, err
		}
		text := observation.Text
		if err != nil {
			text = "error: " + err.Error()
			turn.Error = err.Error()
		}
		move.Kind, move.Text, move.Took, move.Failed = producers.MoveObservation, text, time.Since(start), err != nil || observation.Errors > 0
		a.notifyMove(move)
		names, arguments, said = append(names, c.Function.Name), append(arguments, c.Function.Arguments), append(said, text)
		turn.Outputs += observation.Outputs
		turn.Errors += observation.Errors
		a.messages = append(a.messages, message{Role: "tool", Content: &text, ToolCallID: c.ID})
		if observation.Done {
			a.transcript.Stop, done = schemas.StopAnswer, true
			if observation.Answer != nil {
				a.transcript.Answer = *observation.Answer
			}
			break
		}
	}
	turn.Tool, turn.Arguments, turn.Observation = strings.Join(names, ", "), strings.Join(arguments, "\n"), strings.Join(said, "\n")
	a.transcript.Text += turn.Observation + "\n"
	return done, nil
}

// makeCall makes a call.
func (a *episode) makeCall(ctx context.Context, c call) (producers.Observation, error) {
	var known []string
	for _, tool := range a.env.Tools {
		spec := tool.Spec()
		if spec.Name != c.Function.Name {
			known = append(known, spec.Name)
			continue
		}
		text := c.Function.Arguments
		if spec.Parameters == nil {
			var fields map[string]string
			if err := json.Unmarshal([]byte(text), &fields); err != nil || len(fields) != 1 || fields[queryKey] == "" {
				return producers.Observation{}, fmt.Errorf("the arguments of %s must be {%q: a text}", spec.Name, queryKey)
			}
			text = fields[queryKey]
		}
		a.calls++
		return tool.Call(ctx, producers.Call{Arguments: text, Run: a.ticket.Run, Episode: a.ticket.ID, Index: a.calls - 1, Seed: a.ticket.Seed})
	}
	a.calls++
	return producers.Observation{}, fmt.Errorf("there is no tool %q: there are %s", c.Function.Name, strings.Join(known, ", "))
}

// openSessions opens the sessions of the tools.
func (a *episode) openSessions(ctx context.Context) error {
	t := a.ticket
	for _, tool := range a.env.Tools {
		s, ok := tool.(producers.SessionTool)
		if !ok {
			continue
		}
		told := producers.Session{Run: t.Run, Episode: t.ID, Task: t.Task, Source: t.Prompt.Source, Seed: t.Seed, World: t.Prompt.World}
		err := producers.OpenSession(ctx, s, told, producers.SecretOf(t))
		if err != nil {
			return fmt.Errorf("open %s: %w", tool.Spec().Name, err)
		}
		a.opened = append(a.opened, s)
	}
	return nil
}

// closeSessions closes the sessions, whatever became of the episode.
func (a *episode) closeSessions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), producers.CloseLimit)
	defer cancel()
	for _, tool := range a.opened {
		_ = tool.Close(ctx, a.ticket.ID) // it is scored: only the tool's work is left
	}
}
