package assembly

import (
	"context"
	"strings"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// EpisodeRequest is an episode that somebody asks for and watches.
type EpisodeRequest struct {
	Question
	Task   *Task
	ID     string
	Prompt schemas.Prompt
	Seed   uint64
	Watch  func(producers.Move)
	// Ticket is the episode's ticket, in place of the fields above; nil makes a ticket of them.
	Ticket *schemas.Ticket
}

// RunEpisode runs it.
func (m *LoadedPolicy) RunEpisode(ctx context.Context, e *EpisodeRequest) (*schemas.Trajectory, error) {
	env, limits := m.Course.askedEnvironment(e.Task, m.Sampler, e.Question)
	env.Watch = e.Watch
	ticket := e.Ticket
	if ticket == nil {
		ticket = e.makeTicket(m.Config.Run.Name, limits)
	}
	trajectory, _, err := e.episodeRoller(env, e.Task)(ctx, ticket)
	return trajectory, err
}

// makeTicket is the ticket of an episode that no trainer issued.
func (e *EpisodeRequest) makeTicket(run string, limits schemas.Limits) *schemas.Ticket {
	return &schemas.Ticket{
		Run: run, ID: e.ID + "-0", Group: e.ID, GroupSize: 1, Task: e.Task.Name, Prompt: e.Prompt, Seed: e.Seed,
		Sampling: schemas.Sampling{Temperature: e.Temperature}, Limits: limits,
	}
}

// askedEnvironment returns the environment and the limits of episodes that scores and people ask for: no tool is slowed.
func (c *Course) askedEnvironment(t *Task, policy producers.Policy, q Question) (producers.Environment, schemas.Limits) {
	env, limits := c.taskEnvironment(t, policy), t.limits
	env.Tools = t.plain
	if q.Timeout != 0 {
		limits.Timeout = max(0, q.Timeout)
	}
	if q.NoTool {
		env.Tools, limits.MaxTurns = nil, 0
	}
	return env, limits
}

// UnknownWordsNote tells of words.
func UnknownWordsNote(words []string) string {
	return "the policy has never seen: " + report.Plain(strings.Join(words, ", "))
}

// TypedPrompt is a question that somebody typed, as the task phrases its own, and the words of it that the policy has never seen.
func (c *Course) TypedPrompt(t *Task, text string, answers []string) (p schemas.Prompt, unknown []string) {
	if t.Phrase != nil {
		text = t.Phrase(text)
	}
	if len(answers) == 0 {
		answers = []string{"?"}
	}
	return schemas.Prompt{ID: "typed", Text: text, Answers: answers, Source: "typed"}, tasks.UnknownWords(c.Tokenizer, text)
}

// Question is a question of a split, in the order in which scores take them.
func (t *Task) Question(split tasks.Split, index int) (schemas.Prompt, error) {
	sample := t.Data.Sample(split, index+1, ScoreSeed)
	if index >= len(sample) {
		return schemas.Prompt{}, fault.Usagef("--index %d: the %s split of task %s has %d questions, from 0 on", index, split, t.Name, len(sample))
	}
	return sample[index], nil
}

// ToolNames are the names by which episodes of the task call tools.
func (t *Task) ToolNames() []string {
	var names []string
	for _, spec := range t.callableSpecs() {
		names = append(names, spec.Name)
	}
	return names
}
