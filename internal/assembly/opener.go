package assembly

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

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/recorded"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/toolworker"
)

// openCourse opens the tasks of the run's configuration, as openTasks does.
func (s *Run) openCourse(ctx context.Context) (*Course, error) {
	return OpenTasks(ctx, s.Parts, s.Config, s.Log)
}

// OpenTasks opens the tasks of a configuration. A fault in them, or in the data that they name, is a fault of the configuration.
func OpenTasks(ctx context.Context, doors parts.Registry, cfg *config.Config, log *slog.Logger) (*Course, error) {
	o := newOpener(doors, cfg, log)
	c, err := o.openCourse(ctx)
	if err == nil {
		err = errors.Join(c.checkLengths(), c.checkImitation(cfg))
	}
	if err != nil {
		return nil, config.Invalid(errors.Join(err, o.closeSandboxes()))
	}
	return c, nil
}

// OpenQuestions opens the tasks without their agents, for a command that asks a model by messages: no chat template is needed.
func (s *Run) OpenQuestions(ctx context.Context) (*Course, error) {
	o := newOpener(s.Parts, s.Config, s.Log)
	o.noAgents = true
	c, err := o.openCourse(ctx)
	if err != nil {
		return nil, config.Invalid(errors.Join(err, o.closeSandboxes()))
	}
	return c, nil
}

// opener opens the parts that a configuration names.
type opener struct {
	doors parts.Registry
	cfg   *config.Config
	log   *slog.Logger
	// agents are the agents opened so far, by the name of their section and the tools that they show.
	agents map[string]producers.Agent
	// guards are the guards of the tools opened so far, by the name of their section: tasks that share a section share its bounds.
	guards map[string]*tools.Guard
	// spaces are the sandboxes of the tools that run code.
	spaces *workspace.Manager
	// apart and link are of the tools that are placed on workers; nil where every tool is called here.
	apart *workspace.Manager
	link  *toolworker.Link
	// noAgents opens tasks without agents and demonstrations, noTools without tools.
	noAgents, noTools bool
	// recording is the archive that the run trains on; nil where it has episodes played.
	recording *recorded.Recording
}

// newOpener opens tools that are placed on workers too.
func newOpener(doors parts.Registry, cfg *config.Config, log *slog.Logger) *opener {
	return &opener{
		doors: doors, cfg: cfg, log: log, agents: map[string]producers.Agent{}, spaces: workspace.New(cfg.Sandbox), apart: workspace.New(cfg.Sandbox),
		link: new(toolworker.Link),
	}
}

// closeSandboxes ends the sandboxes of servers that were asked for their tools.
func (o *opener) closeSandboxes() error { return errors.Join(o.spaces.Close(), o.apart.Close()) }

func (o *opener) openCourse(ctx context.Context) (*Course, error) {
	shared, err := folderTokenizer(o.cfg.Model.Folder)
	if err != nil {
		return nil, err
	}
	setups, err := o.openSetups(ctx, shared)
	if err != nil {
		return nil, err
	}
	c := &Course{
		Tokenizer: setups[0].Tokenizer, maxSegments: o.cfg.Trainer.Limits.MaxSegments, spaces: o.spaces, apart: o.apart, link: o.link,
		recording: o.recording,
	}
	if len(setups) > 1 && shared == nil {
		if c.Tokenizer, err = joinTokenizers(o.cfg.Active(), setups); err != nil {
			return nil, err
		}
		if setups, err = o.openSetups(ctx, c.Tokenizer); err != nil {
			return nil, err
		}
	}
	var imitated []tasks.Demonstrations
	for i, name := range o.cfg.Active() {
		t, err := o.openTask(ctx, name, setups[i], c.Tokenizer)
		if err != nil {
			return nil, err
		}
		c.Tasks = append(c.Tasks, t)
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
	tok, err := tokenizer.Open(filepath.Join(folder, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // reading the model reports the missing file
	}
	if err != nil {
		return nil, fmt.Errorf("model.folder: %w", err)
	}
	return tok, nil
}

// openSetups opens each task with a tokenizer, which is nil for the task's own.
func (o *opener) openSetups(ctx context.Context, shared tasks.Tokenizer) ([]*tasks.Setup, error) {
	var out []*tasks.Setup
	if err := o.checkRecordedConfig(); err != nil {
		return nil, err
	}
	for _, name := range o.cfg.Active() {
		setup, err := o.openSetup(ctx, name, shared)
		if err == nil {
			err = checkSetup(setup)
		}
		if err != nil {
			if _, recorded := o.cfg.Tasks[name].Own.(*recorded.Config); recorded {
				return nil, err // which begins with its key
			}
			if shared != nil && o.cfg.Model.Folder != "" {
				err = fmt.Errorf("with the tokenizer of model.folder, %s: %w", o.cfg.Model.Folder, err)
			}
			return nil, fmt.Errorf("task %s: %w", name, err)
		}
		out = append(out, setup)
	}
	return out, nil
}

// openSetup opens a task with a tokenizer, which is nil for the task's own.
func (o *opener) openSetup(ctx context.Context, name string, shared tasks.Tokenizer) (*tasks.Setup, error) {
	section := o.cfg.Tasks[name]
	if own, ok := section.Own.(*recorded.Config); ok {
		return o.openRecorded(name, own, shared)
	}
	door, _ := o.doors.Task(section.Type)
	return door.Open(ctx, tasks.Opening{
		Name: name, Config: section.Own, Seed: o.cfg.Run.Seed, Tokenizer: shared, Texts: o.spokenTexts(), Tags: o.tagTokens(),
		Log: o.log.With("task", name),
	})
}

// checkSetup refuses a setup that lacks a part which every run needs.
func checkSetup(s *tasks.Setup) error {
	switch {
	case s != nil && s.Recording != nil && (s.Data == nil || s.Order == nil):
		return errors.New("its Setup has a Recording, and no Order or no Data")
	case s != nil && s.Recording != nil && s.Tokenizer != nil:
		return nil // no question is asked
	case s == nil || s.Data == nil:
		return errors.New("its Setup has no Data")
	case s.Tokenizer == nil:
		return errors.New("its Setup has no Tokenizer")
	}
	return s.Data.Validate()
}

// spokenTexts returns the texts that the agents and tools of the run may write.
func (o *opener) spokenTexts() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Agents)) {
		if s, ok := o.cfg.Agents[name].Own.(tasks.Speaker); ok {
			out = append(out, s.Texts()...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Tools)) {
		if s, ok := o.cfg.Tools[name].Own.(tasks.Speaker); ok {
			out = append(out, s.Texts()...)
		}
	}
	return out
}

// tagTokens are the tokens of their own that the agents of the run write.
func (o *opener) tagTokens() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Agents)) {
		if a, ok := o.cfg.Agents[name].Own.(agents.Tagged); ok {
			out = append(out, a.TagTokens()...)
		}
	}
	return out
}

// joinTokenizers makes a tokenizer for several tasks.
func joinTokenizers(names []string, setups []*tasks.Setup) (tasks.Tokenizer, error) {
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

// openTask opens the parts of a task.
func (o *opener) openTask(ctx context.Context, name string, setup *tasks.Setup, tok tasks.Tokenizer) (*Task, error) {
	section, limits := o.cfg.Tasks[name], o.cfg.Limits(name)
	t := &Task{
		Name: name, weight: section.Weight, Setup: setup, agent: setup.Agent, tools: setup.Tools, plain: setup.Tools, reward: setup.Reward,
		limits: limits.Rollout(), turns: o.cfg.TurnSchedule(name), agentName: section.Agent, rewardName: section.Reward.Type,
	}
	t.limits.MaxSegments = section.Limits.MaxSegments
	if setup.Recording != nil {
		t.tools, t.plain = nil, nil
		return t, nil
	}
	if err := o.openTools(ctx, t); err != nil {
		return nil, err
	}
	if err := o.openAgent(ctx, t, tok); err != nil {
		return nil, err
	}
	if err := o.openReward(ctx, t); err != nil {
		return nil, err
	}
	return t, nil
}

// openTools opens the tools that a task names, else the task brings its own, and holds the task's questions against them.
func (o *opener) openTools(ctx context.Context, t *Task) error {
	section := o.cfg.Tasks[t.Name]
	if o.noTools {
		t.tools, t.plain = nil, nil
		return nil
	}
	if len(section.Tools) > 0 {
		t.tools, t.plain = nil, nil
	}
	for _, tool := range section.Tools {
		if err := o.openTool(ctx, t, tool); err != nil {
			return err
		}
	}
	if err := o.checkPlacement(t.Name, t); err != nil {
		return err
	}
	if t.Check != nil {
		if err := t.Check(t.toolSpecs()); err != nil {
			return fmt.Errorf("task %s: %w", t.Name, err)
		}
	}
	if err := t.checkWorlds(); err != nil {
		return fmt.Errorf("task %s: %w", t.Name, err)
	}
	return nil
}

// openAgent opens the agent that a task names, else the task brings its own, and has the demonstrations as that agent speaks.
func (o *opener) openAgent(ctx context.Context, t *Task, tok tasks.Tokenizer) (err error) {
	section := o.cfg.Tasks[t.Name]
	if o.noAgents {
		own := *t.Setup
		own.Demonstrations, t.Setup, t.agent = nil, &own, nil
		return nil
	}
	if section.Agent != "" {
		if t.agent, err = o.makeAgent(ctx, section.Agent, tok, t.callableSpecs()); err != nil {
			return err
		}
	}
	if t.agent == nil {
		return fmt.Errorf("task %s brings no agent: name one in tasks.%s.agent", t.Name, t.Name)
	}
	if t.Setup, err = t.spokenSetup(); err != nil {
		return fmt.Errorf("task %s: demonstrations: %w", t.Name, err)
	}
	return o.checkDemonstrations(t)
}

// checkDemonstrations refuses demonstrations that a cold start could not learn from whole.
func (o *opener) checkDemonstrations(t *Task) error {
	most, of := o.cfg.Positions()
	measured, ok := t.Demonstrations.(tasks.Measured)
	if !ok || o.cfg.Trainer.ColdStart.Steps == 0 || most == 0 || measured.Longest() <= most {
		return nil
	}
	return fmt.Errorf("task %s: a demonstration has %d tokens, and %s is %d: raise it, or leave the demonstration out",
		t.Name, measured.Longest(), of, most)
}

// openReward opens the reward that a task names, else the task brings its own.
func (o *opener) openReward(ctx context.Context, t *Task) (err error) {
	section := o.cfg.Tasks[t.Name].Reward
	if section.Type != "" {
		door, _ := o.doors.Reward(section.Type)
		t.reward, err = door.Open(ctx, rewards.Opening{
			Task: t.Name, Config: section.Own, Sources: t.listSources(), Tools: t.toolNames(), Spaces: o.spaces, Log: o.log.With("task", t.Name),
		})
		if err != nil {
			return fmt.Errorf("tasks.%s.reward: %w", t.Name, err)
		}
	}
	if t.reward == nil {
		return fmt.Errorf("task %s brings no reward: name a type in tasks.%s.reward.type", t.Name, t.Name)
	}
	return nil
}

// spokenSetup is the setup with its demonstrations as the agent speaks, where that writes them itself.
func (t *Task) spokenSetup() (*tasks.Setup, error) {
	by, ok := t.agent.(tasks.Demonstrator)
	if !ok || t.Demonstrations == nil {
		return t.Setup, t.checkQuestionsAlone()
	}
	written, ok := t.Demonstrations.(tasks.Rewritable)
	if !ok {
		return nil, errors.New("they are of another agent than the task's, which writes its own: name a file of demonstrations in a task of type jsonl or corpus")
	}
	own := *t.Setup
	var err error
	own.Demonstrations, err = written.Rewrite(by)
	return &own, err
}

// checkQuestionsAlone refuses demonstrations that begin with a conversation, for an agent that knows the question alone.
func (t *Task) checkQuestionsAlone() error {
	if c, ok := t.Demonstrations.(tasks.Conversing); ok && c.Conversations() > 0 {
		return fmt.Errorf("%d of them have messages, and the task's agent reads the question alone: name an agent of type chat",
			c.Conversations())
	}
	return nil
}

// makeAgent opens an agent: a new agent for each set of tools, since an agent may show the tools to the policy.
func (o *opener) makeAgent(ctx context.Context, name string, tok tasks.Tokenizer, specs []producers.ToolSpec) (producers.Agent, error) {
	key := fmt.Sprintf("%s %+q", name, specs)
	if made := o.agents[key]; made != nil {
		return made, nil
	}
	section := o.cfg.Agents[name]
	door, _ := o.doors.Agent(section.Type)
	made, err := door.Open(ctx, agents.Opening{
		Name: name, Config: section.Own, Tokenizer: tok, Log: o.log.With("agent", name), Tools: specs, Spaces: o.spaces,
		Chat: func(vars map[string]any) (*chat.Chat, error) { return o.openChatTemplate(tok, vars) },
	})
	if err != nil {
		return nil, fmt.Errorf("agents.%s: %w", name, err)
	}
	o.agents[key] = made
	return made, nil
}

// openChatTemplate opens the chat template of the model folder.
func (o *opener) openChatTemplate(tok tasks.Tokenizer, vars map[string]any) (*chat.Chat, error) {
	folder := o.cfg.Model.Folder
	codec, ok := tok.(tokenizer.Codec)
	if folder == "" || !ok {
		return nil, fmt.Errorf("it speaks a model's own chat template: name the folder of a model with a byte-level tokenizer by model.folder, which is %q", folder)
	}
	c, err := chat.Open(folder, codec, vars)
	if err != nil {
		return nil, fmt.Errorf("model.folder: %w", err)
	}
	return c, nil
}

// toolGuard is that of a section of tools.
func (o *opener) toolGuard(name string) (*tools.Guard, error) {
	if made := o.guards[name]; made != nil {
		return made, nil
	}
	made, err := tools.NewGuard(o.cfg.Tools[name].Guard)
	if err != nil {
		return nil, fmt.Errorf("tools.%s: %w", name, err)
	}
	if o.guards == nil {
		o.guards = map[string]*tools.Guard{}
	}
	o.guards[name] = made
	return made, nil
}

// openTool opens a tool for a task, with its time limit, and also with its latency. A tool that is placed on workers is opened here as
// well: agents are shown its spec, and a process that calls no workers calls it here.
func (o *opener) openTool(ctx context.Context, t *Task, name string) error {
	section := o.cfg.Tools[name]
	door, _ := o.doors.Tool(section.Type)
	away, spaces := section.On == config.OnWorkers && o.link != nil, o.spaces
	if away {
		spaces = o.apart
	}
	made, err := door.Open(ctx, tools.Opening{Name: name, Config: section.Own, Passages: t.Data.Passages, Worlds: t.Worlds, Spaces: spaces, Log: o.log.With("tool", name)})
	if err != nil {
		return fmt.Errorf("tools.%s: %w", name, err)
	}
	guard, err := o.toolGuard(name)
	if err != nil {
		return err
	}
	for _, one := range tools.Each(made) {
		if _, told := one.(producers.Confidant); told && section.On != "" {
			return fmt.Errorf("tools.%s.on: %s: the tool is told the accepted answers, which no tool worker is: leave on away", name, section.On)
		}
		if one, err = guard.Wrap(one); err != nil {
			return fmt.Errorf("tools.%s: %w", name, err)
		}
		one = tools.Cut(tools.Checked(one), section.Cut)
		if away {
			one = tools.Within(one, section.Timeout)
			t.served = append(t.served, one)
			one = o.link.Place(one) // whose wait for a worker is no part of the time limit
		}
		slow, err := tools.Slow(one, section.Latency)
		if err != nil {
			return err
		}
		if !away {
			one, slow = tools.Within(one, section.Timeout), tools.Within(slow, section.Timeout)
		}
		t.plain, t.tools = append(t.plain, one), append(t.tools, slow)
	}
	return nil
}

// checkPlacement refuses a task of which some tools share a sandbox here, and some on a worker.
func (o *opener) checkPlacement(name string, t *Task) error {
	var here, away string
	for _, tool := range t.plain {
		if _, shares := tools.Bare(tool).(producers.Workspaced); !shares {
			continue
		}
		if slices.ContainsFunc(t.served, func(s producers.Tool) bool { return s.Spec().Name == tool.Spec().Name }) {
			away = tool.Spec().Name
		} else {
			here = tool.Spec().Name
		}
	}
	if here != "" && away != "" {
		return fmt.Errorf("task %s: tools %s and %s share the episode's sandbox, and one runs on the producer and the other on workers: give both the same tools.NAME.on",
			name, here, away)
	}
	return nil
}
