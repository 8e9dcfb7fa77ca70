package assembly

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/internal/recorded"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer"
)

// Course is all that a run trains on: its tasks, opened, which share a tokenizer.
type Course struct {
	// trialNotes are of the trial episodes, in the order of the tasks.
	trialNotes     []string
	Tasks          []*Task // by name
	Tokenizer      tasks.Tokenizer
	maxSegments    int                  // of an episode whose ticket has no bound: the trainer's limit; 0 is none
	demonstrations tasks.Demonstrations // nil where no task has any
	// spaces are the sandboxes of episodes; nothing runs in them before the first cell.
	spaces *workspace.Manager
	// apart are the sandboxes of tools that are placed on workers, where this process is a worker or calls the tools itself.
	apart *workspace.Manager
	// link says where tools are called that are placed on workers.
	link *toolworker.Link
	// recording is the archive of another run that this run trains on; nil where it has episodes played.
	recording *recorded.Recording
}

// Task is a task of a run, with the agent, tools and reward of its episodes.
type Task struct {
	Name   string
	weight int
	*tasks.Setup
	agent producers.Agent
	// tools are as the configuration has them; plain are the same without added latency, for scores and for people.
	tools, plain []producers.Tool
	// served are the tools that are placed on workers, as a worker has them.
	served []producers.Tool
	reward producers.Reward
	// agentName and rewardName are for messages: the section of the agent and the type of the reward; "" are the parts that the task brings.
	agentName, rewardName string
	// limits are the limits of scores; in training turns bounds the tool calls, where it is not nil.
	limits schemas.Limits
	turns  trainer.TurnSchedule
}

// Close ends the sandboxes of episodes and tools. Sandboxes that do not close end with this process.
func (c *Course) Close() error {
	if c.recording != nil {
		c.recording.Close()
	}
	return errors.Join(c.spaces.Close(), c.apart.Close())
}

// inTurn are the demonstrations of several tasks, each task's as often as any other's.
type inTurn []tasks.Demonstrations

// Demonstration is the i-th.
func (d inTurn) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	n := uint64(len(d))
	return d[i%n].Demonstration(i / n)
}

// listSources returns the sources of a task's questions in all splits, sorted.
func (t *Task) listSources() []string {
	var all []string
	for _, split := range tasks.Splits() {
		all = append(all, t.Data.Sources(split)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkImitation refuses a cold start without demonstrations.
func (c *Course) checkImitation(cfg *config.Config) error {
	if steps := cfg.Trainer.ColdStart.Steps; steps > 0 && c.demonstrations == nil {
		return fmt.Errorf("trainer.cold_start.steps: %d: the cold start needs demonstrations, and task %s has none; 0 does without",
			steps, strings.Join(cfg.Active(), " and "))
	}
	return nil
}

// checkLengths refuses questions that leave no token to answer with: their episodes would end before they began, for ever.
func (c *Course) checkLengths() error {
	for _, t := range c.Tasks {
		for _, split := range tasks.Splits() {
			for _, q := range t.Data.Questions[split] {
				n, total := t.promptLength(c.Tokenizer, q), t.limits.MaxTotalTokens
				if total > 0 && n+1 >= total {
					return fmt.Errorf("question %q is %d tokens long: raise limits.max_total_tokens of the task or the trainer, %d, or shorten it", q.ID, n, total)
				}
				if n+1 >= t.limits.MaxTokens {
					return fmt.Errorf("question %q is %d tokens long: raise trainer.limits.max_tokens, %d (and model.max_positions, where no model.folder is set), or shorten it",
						q.ID, n, t.limits.MaxTokens)
				}
			}
		}
	}
	return nil
}

// promptLength is how many tokens a question takes: with all that an agent which speaks a chat template puts around it.
func (t *Task) promptLength(tok tasks.Tokenizer, q schemas.Prompt) int {
	if _, ok := t.agent.(tasks.Demonstrator); ok {
		if agent, ok := t.agent.(producers.Opener); ok {
			return len(agent.Opening(q))
		}
	}
	return len(tok.Encode(q.Text))
}

// Names are the tasks' names.
func (c *Course) Names() string {
	var out []string
	for _, t := range c.Tasks {
		out = append(out, t.Name)
	}
	return strings.Join(out, ", ")
}

// FindTask returns the task with a name; "" is the only task of a run.
func (c *Course) FindTask(name string) (*Task, error) {
	if c.recording != nil {
		return nil, errRecorded
	}
	if name == "" && len(c.Tasks) == 1 {
		return c.Tasks[0], nil
	}
	for _, t := range c.Tasks {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, fault.Usagef("--task %q: the run has the tasks %s", name, c.Names())
}

// taskEnvironment returns the environment of a task's episodes, with a policy to sample from.
func (c *Course) taskEnvironment(t *Task, policy producers.Policy) producers.Environment {
	return producers.Environment{
		Recording: t.Recording, Policy: policy, Tokenizer: c.Tokenizer, Agent: t.agent, Tools: t.tools, Reward: t.reward,
		MaxSegments: c.maxSegments, AgentName: t.agentName, RewardName: t.rewardName,
	}
}

// taskEnvironments returns the environments of all tasks, by name.
func (c *Course) taskEnvironments(policy producers.Policy) map[string]producers.Environment {
	out := map[string]producers.Environment{}
	for _, t := range c.Tasks {
		out[t.Name] = c.taskEnvironment(t, policy)
	}
	return out
}

// Prompts are the questions that the run trains on: of each task as many as its weight says.
func (c *Course) Prompts(seed uint64) (trainer.Prompts, error) {
	var mixed []trainer.Task
	for _, t := range c.Tasks {
		questions := t.Order
		if questions == nil {
			var err error
			if questions, err = t.Data.Prompts(tasks.Train, seed); err != nil {
				return nil, err
			}
		}
		mixed = append(mixed, trainer.Task{Name: t.Name, Weight: t.weight, Prompts: questions, Limits: t.limits, Turns: t.turns})
	}
	return trainer.Mix(mixed...)
}

// openingTokens gives the tokens that every rollout of a ticket begins with; none where its agent does not say.
func (c *Course) openingTokens(asked *schemas.Ticket) []int32 {
	for _, t := range c.Tasks {
		if agent, ok := t.agent.(producers.Opener); ok && t.Name == asked.Task {
			return agent.Opening(asked.Prompt)
		}
	}
	return nil
}

// contextFormat returns how contexts are written for callers that ask the policy without its agent, as the agents define it.
func (c *Course) contextFormat() producers.Format {
	var out producers.Format
	for _, t := range c.Tasks {
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

// ChatContext is how messages become the context that the policy was trained on: a question after the opening token.
func (c *Course) ChatContext(messages []openai.Message) string {
	return strings.TrimSpace(c.contextFormat().Begin + " " + openai.Join(messages))
}

// ChatTemplate is the chat template that an agent of the run speaks; nil where none does.
func (c *Course) ChatTemplate() *chat.Chat {
	for _, t := range c.Tasks {
		if agent, ok := t.agent.(agents.ChatSpeaker); ok {
			return agent.Chat()
		}
	}
	return nil
}

// hasTools reports whether any task has a tool, which can be taken away.
func (c *Course) hasTools() bool {
	return slices.ContainsFunc(c.Tasks, func(t *Task) bool { return len(t.plain) > 0 })
}

// heldOut describes the subject of the test split's questions.
func (c *Course) heldOut() string {
	if len(c.Tasks) > 1 {
		return " of the tasks " + c.Names()
	}
	return c.Tasks[0].HeldOut
}

// About describes the questions of a source, which is named as in a report.
func (c *Course) About(source string) string {
	for _, t := range c.Tasks {
		own, is := strings.CutPrefix(source, t.Name+"/")
		if len(c.Tasks) == 1 {
			own, is = source, true
		}
		if is && t.About != nil {
			return t.About(own)
		}
	}
	return ""
}
