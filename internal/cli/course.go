package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer"
)

// course is all that a run trains on: its tasks, opened, which share a tokenizer.
type course struct {
	tasks          []*task // by name
	tokenizer      tasks.Tokenizer
	demonstrations tasks.Demonstrations // nil where no task has any
}

// task is one task of a run, with what its episodes run in.
type task struct {
	name   string
	weight int
	*tasks.Setup
	agent producers.Agent
	// tools are as the configuration has them; plain are the same without added latency, for scores and for people.
	tools, plain []producers.Tool
	reward       producers.Reward
	limits       schemas.Limits
}

// openCourse opens the tasks of a configuration. What is wrong with them, or with the data that they name, is a fault of the
// configuration.
func (a *app) openCourse(ctx context.Context, cfg *config.Config, log *slog.Logger) (*course, error) {
	o := opener{app: a, cfg: cfg, log: log, agents: map[string]producers.Agent{}}
	c, err := o.course(ctx)
	if err == nil {
		err = errors.Join(c.fit(), c.imitates(cfg))
	}
	if err != nil {
		return nil, &exitError{exitConfig, err}
	}
	return c, nil
}

// opener opens the parts that a configuration names.
type opener struct {
	*app
	cfg *config.Config
	log *slog.Logger
	// agents are those opened so far, by the name of their section.
	agents map[string]producers.Agent
}

func (o *opener) course(ctx context.Context) (*course, error) {
	shared, err := folderTokenizer(o.cfg.Model.Folder)
	if err != nil {
		return nil, err
	}
	setups, err := o.setups(ctx, shared)
	if err != nil {
		return nil, err
	}
	c := &course{tokenizer: setups[0].Tokenizer}
	if len(setups) > 1 && shared == nil {
		if c.tokenizer, err = join(o.cfg.Active(), setups); err != nil {
			return nil, err
		}
		if setups, err = o.setups(ctx, c.tokenizer); err != nil {
			return nil, err
		}
	}
	var imitated []tasks.Demonstrations
	for i, name := range o.cfg.Active() {
		t, err := o.task(ctx, name, setups[i], c.tokenizer)
		if err != nil {
			return nil, err
		}
		c.tasks = append(c.tasks, t)
		if t.Demonstrations != nil {
			imitated = append(imitated, t.Demonstrations)
		}
	}
	if len(imitated) > 0 {
		c.demonstrations = inTurn(imitated)
	}
	return c, nil
}

// folderTokenizer is the tokenizer of a model folder; nil where there is no folder, or none in it.
func folderTokenizer(folder string) (tasks.Tokenizer, error) {
	if folder == "" {
		return nil, nil
	}
	tok, err := tokenizer.Load(filepath.Join(folder, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // reading the model tells what is missing
	}
	if err != nil {
		return nil, fmt.Errorf("model.folder: %w", err)
	}
	return tok, nil
}

// setups opens each task with a tokenizer, which is nil for the task's own.
func (o *opener) setups(ctx context.Context, shared tasks.Tokenizer) ([]*tasks.Setup, error) {
	var out []*tasks.Setup
	for _, name := range o.cfg.Active() {
		section := o.cfg.Tasks[name]
		door, _ := o.doors.Task(section.Type)
		setup, err := door.Open(ctx, tasks.Opening{
			Name: name, Config: section.Own, Seed: o.cfg.Run.Seed, Tokenizer: shared, Texts: o.texts(), Log: o.log.With("task", name),
		})
		if err == nil {
			err = complete(setup)
		}
		if err != nil {
			if shared != nil && o.cfg.Model.Folder != "" {
				err = fmt.Errorf("with the tokenizer of model.folder, %s: %w", o.cfg.Model.Folder, err)
			}
			return nil, fmt.Errorf("task %s: %w", name, err)
		}
		out = append(out, setup)
	}
	return out, nil
}

// complete refuses a setup without what every run needs.
func complete(s *tasks.Setup) error {
	switch {
	case s == nil || s.Data == nil:
		return errors.New("its Setup has no Data")
	case s.Tokenizer == nil:
		return errors.New("its Setup has no Tokenizer")
	}
	return s.Data.Validate()
}

// texts are what the agents and tools of the run may say.
func (o *opener) texts() []string {
	type speaker interface{ Texts() []string }
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Agents)) {
		if s, ok := o.cfg.Agents[name].Own.(speaker); ok {
			out = append(out, s.Texts()...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Tools)) {
		if s, ok := o.cfg.Tools[name].Own.(speaker); ok {
			out = append(out, s.Texts()...)
		}
	}
	return out
}

// join is one tokenizer for several tasks.
func join(names []string, setups []*tasks.Setup) (tasks.Tokenizer, error) {
	same := true
	var words []*tokenizer.Tokenizer
	for _, s := range setups {
		same = same && s.Tokenizer.JSON() != nil && bytes.Equal(s.Tokenizer.JSON(), setups[0].Tokenizer.JSON())
		if w, ok := s.Tokenizer.(*tokenizer.Tokenizer); ok {
			words = append(words, w)
		}
	}
	if same {
		return setups[0].Tokenizer, nil
	}
	if len(words) < len(setups) {
		return nil, fmt.Errorf("tasks %s: their tokenizers cannot be joined: name a model with one for all by model.folder", strings.Join(names, ", "))
	}
	tok, err := tokenizer.Join(words...)
	if err != nil {
		return nil, fmt.Errorf("tasks %s: %w", strings.Join(names, ", "), err)
	}
	return tok, nil
}

// task opens the parts of one task.
func (o *opener) task(ctx context.Context, name string, setup *tasks.Setup, tok tasks.Tokenizer) (*task, error) {
	section, limits := o.cfg.Tasks[name], o.cfg.Limits(name)
	t := &task{
		name: name, weight: section.Weight, Setup: setup, agent: setup.Agent, tools: setup.Tools, plain: setup.Tools, reward: setup.Reward,
		limits: schemas.Limits{MaxTurns: limits.MaxTurns, MaxTokens: limits.MaxTokens, Timeout: limits.Timeout},
	}
	var err error
	if section.Agent != "" {
		if t.agent, err = o.agent(ctx, section.Agent, tok); err != nil {
			return nil, err
		}
	}
	if len(section.Tools) > 0 {
		t.tools, t.plain = nil, nil
	}
	for _, tool := range section.Tools {
		if err := o.tool(ctx, t, tool); err != nil {
			return nil, err
		}
	}
	if section.Reward.Type != "" {
		door, _ := o.doors.Reward(section.Reward.Type)
		t.reward, err = door.Open(ctx, rewards.Opening{Task: name, Config: section.Reward.Own, Sources: t.sources(), Log: o.log.With("task", name)})
		if err != nil {
			return nil, fmt.Errorf("tasks.%s.reward: %w", name, err)
		}
	}
	switch {
	case t.agent == nil:
		return nil, fmt.Errorf("task %s brings no agent: name one in tasks.%s.agent", name, name)
	case t.reward == nil:
		return nil, fmt.Errorf("task %s brings no reward: name a type in tasks.%s.reward.type", name, name)
	}
	return t, nil
}

func (o *opener) agent(ctx context.Context, name string, tok tasks.Tokenizer) (producers.Agent, error) {
	if made := o.agents[name]; made != nil {
		return made, nil
	}
	section := o.cfg.Agents[name]
	door, _ := o.doors.Agent(section.Type)
	made, err := door.Open(ctx, agents.Opening{Name: name, Config: section.Own, Tokenizer: tok, Log: o.log.With("agent", name)})
	if err != nil {
		return nil, fmt.Errorf("agents.%s: %w", name, err)
	}
	o.agents[name] = made
	return made, nil
}

// tool opens a tool for a task, with its time limit, and also with its latency.
func (o *opener) tool(ctx context.Context, t *task, name string) error {
	section := o.cfg.Tools[name]
	door, _ := o.doors.Tool(section.Type)
	made, err := door.Open(ctx, tools.Opening{Name: name, Config: section.Own, Passages: t.Data.Passages, Log: o.log.With("tool", name)})
	if err != nil {
		return fmt.Errorf("tools.%s: %w", name, err)
	}
	slow, err := tools.Slow(made, section.Latency)
	if err != nil {
		return err
	}
	t.plain = append(t.plain, tools.Within(made, section.Timeout))
	t.tools = append(t.tools, tools.Within(slow, section.Timeout))
	return nil
}

// inTurn are the demonstrations of several tasks, each task's as often as any other's.
type inTurn []tasks.Demonstrations

// Demonstration is the i-th.
func (d inTurn) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	n := uint64(len(d))
	return d[i%n].Demonstration(i / n)
}

// sources are those of a task's questions in all splits, sorted.
func (t *task) sources() []string {
	var all []string
	for _, split := range tasks.Splits() {
		all = append(all, t.Data.Sources(split)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// imitates refuses a cold start without demonstrations.
func (c *course) imitates(cfg *config.Config) error {
	if steps := cfg.Trainer.ColdStart.Steps; steps > 0 && c.demonstrations == nil {
		return fmt.Errorf("trainer.cold_start.steps: %d: the cold start needs demonstrations, and task %s has none; 0 does without",
			steps, strings.Join(cfg.Active(), " and "))
	}
	return nil
}

// fit refuses questions that leave no token to answer with: their episodes would end before they began, for ever.
func (c *course) fit() error {
	for _, t := range c.tasks {
		for _, split := range tasks.Splits() {
			for _, q := range t.Data.Questions[split] {
				if n := len(c.tokenizer.Encode(q.Text)); n+1 >= t.limits.MaxTokens {
					return fmt.Errorf("question %q is %d tokens long: raise trainer.limits.max_tokens, %d (and model.max_positions), or shorten it",
						q.ID, n, t.limits.MaxTokens)
				}
			}
		}
	}
	return nil
}

// names are the tasks' names.
func (c *course) names() string {
	var out []string
	for _, t := range c.tasks {
		out = append(out, t.name)
	}
	return strings.Join(out, ", ")
}

// chosen is the task with a name, the only one where the name is "".
func (c *course) chosen(name string) (*task, error) {
	if name == "" && len(c.tasks) == 1 {
		return c.tasks[0], nil
	}
	for _, t := range c.tasks {
		if t.name == name {
			return t, nil
		}
	}
	return nil, &exitError{exitUsage, fmt.Errorf("--task %q: the run has the tasks %s", name, c.names())}
}

// environment is what a task's episodes run in with a policy to sample from.
func (c *course) environment(t *task, policy producers.Policy) producers.Environment {
	return producers.Environment{Policy: policy, Tokenizer: c.tokenizer, Agent: t.agent, Tools: t.tools, Reward: t.reward}
}

// environments are those of all tasks, by name.
func (c *course) environments(policy producers.Policy) map[string]producers.Environment {
	out := map[string]producers.Environment{}
	for _, t := range c.tasks {
		out[t.name] = c.environment(t, policy)
	}
	return out
}

// prompts are the questions that the run trains on: of each task as many as its weight says.
func (c *course) prompts(seed uint64) (trainer.Prompts, error) {
	var mixed []trainer.Task
	for _, t := range c.tasks {
		questions, err := t.Data.Prompts(tasks.Train, seed)
		if err != nil {
			return nil, err
		}
		mixed = append(mixed, trainer.Task{Name: t.name, Weight: t.weight, Prompts: questions, Limits: t.limits})
	}
	return trainer.Mix(mixed...)
}

// opening gives the tokens that every rollout of a ticket begins with; none where its agent does not say.
func (c *course) opening(asked *schemas.Ticket) []int32 {
	for _, t := range c.tasks {
		if agent, ok := t.agent.(producers.Opener); ok && t.name == asked.Task {
			return agent.Opening(asked.Prompt)
		}
	}
	return nil
}

// format is how contexts are written for those who ask the policy without the agent: as the agents say that know it.
func (c *course) format() producers.Format {
	var out producers.Format
	for _, t := range c.tasks {
		agent, ok := t.agent.(producers.Formatted)
		if !ok {
			continue
		}
		f := agent.Format()
		if out.Begin == "" {
			out.Begin = f.Begin
		}
		for _, stop := range f.Stop {
			if !slices.Contains(out.Stop, stop) {
				out.Stop = append(out.Stop, stop)
			}
		}
	}
	return out
}

// chat is how messages become the context that the policy was trained on: one question after the opening token.
func (c *course) chat(messages []consumers.Message) string {
	return strings.TrimSpace(c.format().Begin + " " + consumers.JoinMessages(messages))
}

// hasTools says whether any task has a tool, which can be taken away.
func (c *course) hasTools() bool {
	return slices.ContainsFunc(c.tasks, func(t *task) bool { return len(t.plain) > 0 })
}

// heldOut says what the questions of the test split are about.
func (c *course) heldOut() string {
	if len(c.tasks) > 1 {
		return " of the tasks " + c.names()
	}
	return c.tasks[0].HeldOut
}

// about says what a source's questions ask, as a report names the source.
func (c *course) about(source string) string {
	for _, t := range c.tasks {
		own, is := strings.CutPrefix(source, t.name+"/")
		if len(c.tasks) == 1 {
			own, is = source, true
		}
		if is && t.About != nil {
			return t.About(own)
		}
	}
	return ""
}
