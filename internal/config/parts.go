package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/trainer"
)

// Task is a task that the run trains on, with the agent, tools, reward and limits of its episodes. Its name is part of the subjects of its
// tickets and of the names of its metrics: lower-case letters, digits, - and _. A run with several tasks trains a single policy on all of
// them.
type Task struct {
	// Type is the task's type; the keys of each type are listed below. Defaults to the section's name.
	Type string `koanf:"type"`
	// Weight is how many of the run's questions are the task's, relative to the weights of the other tasks: a whole number, at
	// most 10000. 0 leaves the task out. Defaults to 1.
	Weight int `koanf:"weight"`
	// Agent names a section of agents, or a type of agent with its defaults. "" is the task's own agent.
	Agent string `koanf:"agent"`
	// Tools name sections of tools, or types of tools with their defaults. None is the task's own tools.
	Tools []string `koanf:"tools"`
	// Limits bound an episode of the task.
	Limits TaskLimits `koanf:"limits"`
	// Reward computes the reward of an episode.
	Reward Reward `koanf:"reward"`
	// Own holds the keys of the type.
	Own any `koanf:",squash"`
}

// TaskLimits bound the episodes of a task, where its bounds differ from trainer.limits.
type TaskLimits struct {
	// MaxTurns bounds the tool calls; -1 is trainer.limits.max_turns. Defaults to -1.
	MaxTurns int `koanf:"max_turns"`
	// MaxTurnsFrom bounds the tool calls by how far training is, in the place of MaxTurns: {0: 2, 100: 5} allows 2 to an episode whose
	// ticket is issued before step 100, and 5 from then on. It begins at step 0 and never shrinks; evaluations have the last bound.
	// Defaults to none.
	MaxTurnsFrom map[string]int `koanf:"max_turns_from"`
	// MaxTokens bounds the tokens of a segment; 0 is trainer.limits.max_tokens. Defaults to 0.
	MaxTokens int `koanf:"max_tokens"`
	// MaxTotalTokens bounds the tokens of all segments together; 0 is trainer.limits.max_total_tokens. Defaults to 0.
	MaxTotalTokens int `koanf:"max_total_tokens"`
	// MaxSegments ends an episode that would begin another segment; it is at most trainer.limits.max_segments, beyond which trajectories
	// are refused. 0 is the producer's trainer.limits.max_segments. Defaults to 0.
	MaxSegments int `koanf:"max_segments"`
	// Timeout bounds the wall-clock of an episode; 0 is trainer.limits.timeout. Defaults to 0.
	Timeout time.Duration `koanf:"timeout"`
}

// Reward computes the reward of a task's episodes.
type Reward struct {
	// Type is the reward's type; the keys of each type are listed below. "" is the task's own reward.
	Type string `koanf:"type"`
	// Own holds the keys of the type.
	Own any `koanf:",squash"`
}

// Agent builds the policy's prompts and reads its replies. Several tasks may name the same section.
type Agent struct {
	// Type is the agent's type; the keys of each type are listed below. Defaults to the section's name.
	Type string `koanf:"type"`
	// Own holds the keys of the type.
	Own any `koanf:",squash"`
}

// Tool is a tool that agents call. Several tasks may name the same section.
type Tool struct {
	// Type is the tool's type; the keys of each type are listed below. Defaults to the section's name.
	Type string `koanf:"type"`
	// On is where the tool runs: workers are the processes of weir tools, which have sessions for the episodes of all producers; "" is the
	// process of the episode. Defaults to "".
	On string `koanf:"on"`
	// Timeout bounds a call. Defaults to 30s.
	Timeout time.Duration `koanf:"timeout"`
	// Cut bounds an observation, also the text of a tool's error, in tokens of the policy. A tool with a bound of its own keeps it where
	// the section has the default.
	Cut producers.Cut `koanf:"cut"`
	// Latency is added to every call in training, to stand for the latency of a real service.
	Latency tools.LatencyConfig `koanf:"latency"`
	// Guard bounds the calls at once, retries, and stops calling a tool that is down.
	Guard tools.GuardConfig `koanf:",squash"`
	// Own holds the keys of the type.
	Own any `koanf:",squash"`
}

// maxWeight is the greatest weight that trainer.Mix accepts.
const maxWeight = 10_000

// AnyName stands, where keys are explained, for the name that a user gives a section.
const AnyName = "NAME"

// Named has a section of each kind under AnyName, with the keys that every type has and their defaults.
func Named() any {
	return &struct {
		Services map[string]*remote.Service `koanf:"services"`
		Tasks    map[string]*Task           `koanf:"tasks"`
		Agents   map[string]*Agent          `koanf:"agents"`
		Tools    map[string]*Tool           `koanf:"tools"`
	}{
		map[string]*remote.Service{AnyName: new(remote.DefaultService())},
		map[string]*Task{AnyName: newTaskSection()},
		map[string]*Agent{AnyName: {}},
		map[string]*Tool{AnyName: newToolSection()},
	}
}

func newTaskSection() *Task { return &Task{Weight: 1, Limits: TaskLimits{MaxTurns: -1}} }

// OnWorkers is the value of a tool's key on for tools that run on tool workers.
const OnWorkers = "workers"

// OnWorkers reports whether a tool of the run's tasks runs on tool workers.
func (c *Config) OnWorkers() bool {
	return slices.ContainsFunc(c.Active(), func(task string) bool {
		return slices.ContainsFunc(c.Tasks[task].Tools, func(tool string) bool {
			return c.Tools[tool] != nil && c.Tools[tool].On == OnWorkers
		})
	})
}

func newToolSection() *Tool {
	return &Tool{Timeout: defaultTimeout, Cut: producers.DefaultCut(), Guard: tools.DefaultGuardConfig()}
}

// DefaultTool is a section of a type with its defaults, for a task that names the type alone.
func DefaultTool(door tools.Type) *Tool {
	t := newToolSection()
	t.Type, t.Own = door.Name(), door.Config()
	return t
}

const defaultTimeout = 30 * time.Second

// partName is the form of a name of a section of tasks, agents or tools: a part of a key, a variable and a subject.
var partName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Active are the names of the tasks that the run trains on, sorted.
func (c *Config) Active() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		if c.Tasks[name].Weight > 0 {
			out = append(out, name)
		}
	}
	return out
}

// Limits are the limits of a task's episodes.
func (c *Config) Limits(task string) trainer.Limits {
	limits := c.Trainer.Limits
	if t := c.Tasks[task]; t != nil {
		if t.Limits.MaxTurns >= 0 {
			limits.MaxTurns = t.Limits.MaxTurns
		}
		limits.MaxTurns = c.TurnSchedule(task).Last(limits.MaxTurns)
		if t.Limits.MaxTokens > 0 {
			limits.MaxTokens = t.Limits.MaxTokens
		}
		if t.Limits.MaxTotalTokens > 0 {
			limits.MaxTotalTokens = t.Limits.MaxTotalTokens
		}
		if t.Limits.Timeout > 0 {
			limits.Timeout = t.Limits.Timeout
		}
	}
	return limits
}

// TurnSchedule bounds the tool calls of a task's episodes by the step at which their tickets are issued; nil where that does not change.
func (c *Config) TurnSchedule(task string) trainer.TurnSchedule {
	if t := c.Tasks[task]; t != nil {
		schedule, _ := t.Limits.readSchedule() // an invalid schedule has been refused
		return schedule
	}
	return nil
}

// readSchedule reads the schedule, and reports every fault.
func (l TaskLimits) readSchedule() (trainer.TurnSchedule, error) {
	if len(l.MaxTurnsFrom) == 0 {
		return nil, nil
	}
	var f faults
	schedule := trainer.TurnSchedule{}
	for _, text := range slices.Sorted(maps.Keys(l.MaxTurnsFrom)) {
		step, err := strconv.ParseInt(text, 10, 64)
		f.addUnless(text, err == nil && strconv.FormatInt(step, 10) == text, fmt.Sprintf("%q: a step is a whole number", text))
		schedule[step] = l.MaxTurnsFrom[text]
	}
	if f == nil {
		f.addSection("", schedule.Validate())
	}
	if f != nil {
		return nil, errors.Join(f...)
	}
	return schedule, nil
}

// validateParts reports every fault of the tasks, agents and tools.
func (c *Config) validateParts(f *faults) {
	f.addUnless("tasks", len(c.Active()) > 0, "no task has a weight: the run would train on nothing")
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		key := "tasks." + name
		f.addUnless(key, partName.MatchString(name), wantName)
		f.addSection(key, c.validateTask(c.Tasks[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		f.addUnless("services."+name, partName.MatchString(name), wantName)
		f.addSection("services."+name, c.Services[name].Validate())
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		f.addUnless("agents."+name, partName.MatchString(name), wantName)
		f.addSection("agents."+name, validateOwn(c.Agents[name].Own))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		key, t := "tools."+name, c.Tools[name]
		f.addUnless(key, partName.MatchString(name), wantName)
		f.addUnless(key+".on", t.On == "" || t.On == OnWorkers, fmt.Sprintf("%q: want %s, or \"\" for the process of the episode", t.On, OnWorkers))
		f.addUnless(key+".timeout", t.Timeout > 0, fmt.Sprintf("%s: must be positive", t.Timeout))
		f.addSection(key+".cut", t.Cut.Validate())
		f.addSection(key+".latency", t.Latency.Validate())
		f.addSection(key, t.Guard.Validate())
		f.addSection(key, validateOwn(t.Own))
	}
}

const wantName = "want up to 32 lower-case letters, digits, - or _"

// validateTask reports every fault of a task, under the keys' own names.
func (c *Config) validateTask(t *Task) error {
	var f faults
	f.addUnless("weight", t.Weight >= 0 && t.Weight <= maxWeight, fmt.Sprintf("%d: must be between 0 and %d", t.Weight, maxWeight))
	f.addUnless("agent", t.Agent == "" || c.Agents[t.Agent] != nil, noSectionFault(t.Agent, "agents", slices.Concat(parts.Names(c.registry.Agents), sectionNamesOf(c.Agents))))
	for _, tool := range t.Tools {
		f.addUnless("tools", c.Tools[tool] != nil, noSectionFault(tool, "tools", slices.Concat(parts.Names(c.registry.Tools), sectionNamesOf(c.Tools))))
	}
	f.addUnless("limits.max_turns", t.Limits.MaxTurns >= -1, fmt.Sprintf("%d: must not be negative, but for -1", t.Limits.MaxTurns))
	_, err := t.Limits.readSchedule()
	f.addSection("limits.max_turns_from", err)
	f.addUnless("limits.max_turns", t.Limits.MaxTurns < 0 || len(t.Limits.MaxTurnsFrom) == 0,
		fmt.Sprintf("%d: the task has max_turns_from, which stands in its place", t.Limits.MaxTurns))
	f.addUnless("limits.max_tokens", t.Limits.MaxTokens >= 0, fmt.Sprintf("%d: must not be negative", t.Limits.MaxTokens))
	c.checkLength(&f, "limits.max_tokens", t.Limits.MaxTokens)
	f.addUnless("limits.max_total_tokens", t.Limits.MaxTotalTokens >= 0, fmt.Sprintf("%d: must not be negative", t.Limits.MaxTotalTokens))
	most := c.Trainer.Limits.MaxSegments
	f.addUnless("limits.max_segments", t.Limits.MaxSegments >= 0, fmt.Sprintf("%d: must not be negative", t.Limits.MaxSegments))
	f.addUnless("limits.max_segments", most <= 0 || t.Limits.MaxSegments <= most,
		fmt.Sprintf("%d: must not exceed trainer.limits.max_segments, %d: what has more is refused", t.Limits.MaxSegments, most))
	f.addUnless("limits.timeout", t.Limits.Timeout >= 0, fmt.Sprintf("%s: must not be negative", t.Limits.Timeout))
	f.addSection("reward", validateOwn(t.Reward.Own))
	f.addSection("", validateOwn(t.Own))
	return errors.Join(f...)
}

// noSectionFault is the fault of a task that names an unknown agent or tool.
func noSectionFault(name, section string, known []string) string {
	slices.Sort(known)
	return fmt.Sprintf("%q: no section of %s and no type of them has this name: want %s", name, section, joinWithOr(slices.Compact(known)))
}

func sectionNamesOf[T any](parts map[string]T) []string { return slices.Collect(maps.Keys(parts)) }

// validateOwn asks the keys of a type for their faults.
func validateOwn(own any) error { return check.Own(own) }
