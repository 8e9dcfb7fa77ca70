package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// byHand is an episode that somebody asks for and watches.
type byHand struct {
	question
	task   *task
	id     string
	prompt schemas.Prompt
	seed   uint64
	watch  func(producers.Move)
	// ticket is what the episode is of, in place of what is above; nil makes one.
	ticket *schemas.Ticket
}

// episode runs it.
func (m *trained) episode(ctx context.Context, e *byHand) (*schemas.Trajectory, error) {
	env, limits := m.course.asked(e.task, m.policy, e.question)
	env.Watch = e.watch
	ticket := e.ticket
	if ticket == nil {
		ticket = e.made(m.cfg.Run.Name, limits)
	}
	trajectory, _, err := e.roller(env, e.task)(ctx, ticket)
	return trajectory, err
}

// made is the ticket of an episode that no trainer issued.
func (e *byHand) made(run string, limits schemas.Limits) *schemas.Ticket {
	return &schemas.Ticket{
		Run: run, ID: e.id + "-0", Group: e.id, GroupSize: 1, Task: e.task.name, Prompt: e.prompt, Seed: e.seed,
		Sampling: schemas.Sampling{Temperature: e.temperature}, Limits: limits,
	}
}

// asked is what the episodes of a task run in for scores and for people, and their limits: no tool is slowed.
func (c *course) asked(t *task, policy producers.Policy, q question) (producers.Environment, schemas.Limits) {
	env, limits := c.environment(t, policy), t.limits
	env.Tools = t.plain
	if q.timeout != 0 {
		limits.Timeout = max(0, q.timeout)
	}
	if q.noTool {
		env.Tools, limits.MaxTurns = nil, 0
	}
	return env, limits
}

// typed is a question that somebody typed, as the task phrases its own. Words that the policy has never seen are told.
func (m *trained) typed(t *task, text string, answers []string) schemas.Prompt {
	p, unknown := m.course.typed(t, text, answers)
	if len(unknown) > 0 {
		fmt.Fprintln(m.err, neverSeen(unknown))
	}
	return p
}

// neverSeen tells of words.
func neverSeen(words []string) string {
	return "the policy has never seen: " + report.Plain(strings.Join(words, ", "))
}

// typed is a question that somebody typed, as the task phrases its own, and the words of it that the policy has never seen.
func (c *course) typed(t *task, text string, answers []string) (p schemas.Prompt, unknown []string) {
	if t.Phrase != nil {
		text = t.Phrase(text)
	}
	if len(answers) == 0 {
		answers = []string{"?"}
	}
	return schemas.Prompt{ID: "typed", Text: text, Answers: answers, Source: "typed"}, tasks.UnknownWords(c.tokenizer, text)
}

// live shows an episode as it goes on, and keeps what it showed. Its zero value shows nothing.
type live struct {
	out    io.Writer
	colour bool
	// prompt shows the context that the episode begins with too.
	prompt bool

	mu    sync.Mutex
	parts []report.RolloutPart
	calls map[int]int // the parts of calls, by the call's index
}

// move takes one move; it may be called from several goroutines.
func (l *live) move(m producers.Move) {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := report.RolloutPart{Role: string(m.Kind), Segment: m.Segment, Turn: -1, Text: m.Text, Agent: m.Agent}
	shown := part
	switch {
	case m.Kind == producers.MoveTool:
		part.Tool, part.Seconds = m.Tool, -1
		if l.calls == nil {
			l.calls = map[int]int{}
		}
		l.calls[m.Call] = len(l.parts)
		shown = part
	case m.Tool != "":
		at := l.calls[m.Call]
		l.parts[at].Seconds, l.parts[at].Failed = m.Took.Seconds(), m.Failed
		if at != len(l.parts)-1 { // others were made or came back since
			shown.Text = fmt.Sprintf("%s: %s", m.Tool, m.Text)
		}
	}
	l.parts = append(l.parts, part)
	if l.out != nil && (l.prompt || m.Kind != producers.MovePrompt) {
		_ = shown.Print(l.out, l.colour) // who watches has gone: the episode ends all the same
	}
}

// rollout is what the episode came to. One without token ids has the parts that were seen.
func (l *live) rollout(t *schemas.Trajectory, tok producers.Tokenizer) *report.Rollout {
	r := report.NewRollout(t, tok.Decode)
	if len(t.Segments) == 0 {
		r.Parts = l.parts
	}
	return r
}
