package tasks

import (
	"context"
	"errors"
	"log/slog"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/part"
	"github.com/weir-rl/weir/schemas"
)

// Task is something to train an agent on. A configuration names it, in the section tasks, and sets its keys; [Task.Open] makes the parts of
// it that the roles of a run need.
type Task interface {
	// Name is the task's type in a configuration: lower-case letters, digits, - and _.
	Name() string
	// Config is a pointer to a new struct that holds the defaults of the task's own keys, or nil where it has none. Each field with a tag
	// `koanf:"name"` is a key; a tag `usage:"..."` explains it. A method Validate() error, of the struct or of its pointer, reports every
	// fault, each beginning with its key. The names type, weight, agent, tools, reward and limits are taken.
	Config() any
	// Open makes the task. The same Opening makes the same Setup, on every machine: the roles of a run each open it.
	Open(ctx context.Context, o Opening) (*Setup, error)
}

// Opening has the arguments that a task is opened with.
type Opening struct {
	// Name is the task's in the configuration: its type's name unless the user chose another.
	Name string
	// Config is what [Task.Config] returned, with the values that the user set.
	Config any
	// Seed is the run's.
	Seed uint64
	// Tokenizer is the run's, which the task must use: a model folder has a tokenizer, and the tasks of a run share a tokenizer. It is nil
	// where the run uses the tokenizer that this task brings. Where several tasks are mixed, each is opened first without a tokenizer and
	// then again with the shared tokenizer.
	Tokenizer Tokenizer
	// Texts are the texts that the agents and tools of the run may show to the policy beside the task's own, for a task that makes its
	// vocabulary of words.
	Texts []string
	// Tags are tokens of their own that the agents of the run write, for the same task.
	Tags []string
	// Log is never nil.
	Log *slog.Logger
}

// Setup is all that a run asks of a task.
type Setup struct {
	// Data are the questions in three splits, and the passages that a search tool finds. Its train split has a question.
	Data *Dataset
	// Tokenizer is the tokenizer that Demonstrations and Agent were made with: [Opening.Tokenizer] where that is not nil.
	Tokenizer Tokenizer
	// Demonstrations are imitated before the reinforcement learning begins; nil where there are none.
	Demonstrations Demonstrations
	// Agent, Tools and Reward are the task's own. nil leaves the choice to the configuration, as do the names in the task's section, which
	// come first.
	Agent  producers.Agent
	Tools  []producers.Tool
	Reward producers.Reward
	// Worlds are functions that code cells of the task's agents can call; nil is none.
	Worlds []World
	// Order is the order in which the train split is asked. nil asks each source as often as any other, each in a new order every
	// epoch.
	Order Order
	// Check refuses the tools that the task's episodes may call, such as for the lack of a tool that a row of data names. nil takes any.
	Check func(tools []producers.ToolSpec) error
	// Where says where a question stands by its id, such as questions.jsonl:12, for whoever has to mend it. "" is nowhere; nil knows of
	// none.
	Where func(id string) string
	// About describes the questions of a source in a few words, for tables: "a country's neighbour". "" says nothing; nil says nothing of
	// any.
	About func(source string) string
	// HeldOut describes the questions of the test split, as a continuation of "240 questions": " about countries that no training question
	// names". It may be "".
	HeldOut string
	// Recording answers the task's tickets in place of episodes, and Order has its prompts: Data needs no question, and Agent, Tools and
	// Reward are not read. Where Order has a method End() uint64 the run ends there. nil has episodes played.
	Recording producers.Recording
	// Phrase writes a person's question as the questions of the task are written, such as in lower case. nil leaves it.
	Phrase func(text string) string
}

// Tokenizer is a producers.Tokenizer that can be written down.
type Tokenizer interface {
	producers.Tokenizer
	// JSON is the tokenizer.json that checkpoints carry; nil where the tokenizer has none. Two tokenizers with the same
	// JSON are the same.
	JSON() []byte
}

// Demonstrations are the examples that the supervised start imitates. The i-th is always the same. mask is 1 at the tokens to be imitated;
// the first token is never imitated.
type Demonstrations interface {
	Demonstration(i uint64) (tokens []int32, mask []uint8)
}

// Demonstration is an episode written out: a question, calls of tools with their observations, and the answer.
type Demonstration struct {
	// Role is whose context it is, for an agent that plays several roles: see [schemas.Role]. "" is the agent that reads the question.
	Role     string
	Question string
	// Messages are the conversation that ends with the question, where the question is not all of it: an agent that speaks a chat template
	// begins with them, and no other agent writes the demonstration. nil is the question alone.
	Messages []Message
	// Notes are the agent's notepad, and Before the turns that it is shown, where the demonstration is a segment of an episode whose
	// context was trimmed; a step of Before without arguments is an output by itself. Neither is imitated.
	Notes  string
	Before []Step
	// Summary is what the agent wrote at the end of the context before, which it is shown and does not imitate. SumUp is the summary that it
	// writes after the last step, at the end of this context. "" is none.
	Summary, SumUp string
	// Steps are the calls, and Answer is the agent's answer after them; "" where the last step ends the episode, or the segment.
	Steps  []Step
	Answer string
}

// AskedAlone is nil where the question is all that the demonstration begins with, else the reason why an agent that reads the question
// alone does not write it.
func (d *Demonstration) AskedAlone() error {
	if len(d.Messages) > 0 {
		return errors.New("messages: the agent reads the question alone: name an agent of type chat")
	}
	return nil
}

// Step is a call of a tool.
type Step struct {
	// Tool is the tool's name; "" is the first tool that the agent has.
	Tool string
	// Arguments are the arguments of the call: free text, or JSON where the tool has a schema.
	Arguments string
	// Result is its observation.
	Result string
}

// Demonstrator is an agent that writes demonstrations as its own episodes would have been: the tokens, and 1 where the policy would
// have sampled them.
type Demonstrator interface {
	Demonstrate(d Demonstration) (tokens []int32, mask []uint8, err error)
}

// Rewritable are demonstrations that can be written as another agent speaks.
type Rewritable interface {
	Demonstrations
	Rewrite(by Demonstrator) (Demonstrations, error)
}

// MetaMessages is the key of [schemas.Prompt.Meta] under which a prompt that is a conversation has its messages, a JSON list of
// {"role", "content"} that ends with the question. An agent that speaks a chat template begins with them.
const MetaMessages = "messages"

// Message is a message of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Order is an endless order of prompts. The prompt at a cursor is always the same.
type Order interface {
	Prompt(cursor uint64) schemas.Prompt
}

// Presetter is a Task with defaults of its own for a run.
type Presetter interface {
	Task
	Preset() Preset
}

// Preset are the defaults of a run that trains on a task. Whatever the user sets comes before them.
type Preset struct {
	// Agent and Tools name sections of agents and tools, and Reward a type of reward, for a task whose Setup brings none.
	Agent  string
	Tools  []string
	Reward string
	// Settings are values of other keys, such as {"trainer.cold_start.steps": 1200}. Of several tasks of a run that set the
	// same key, the greatest number holds.
	Settings map[string]any
}

// New makes a Task of its type's name, the defaults of its own keys (nil where it has none) and a function that opens it with a copy of
// the keys, which are valid. [Task.Open] refuses keys of another type, and keys that their own Validate refuses.
func New[C any](name string, defaults func() C, open func(ctx context.Context, cfg C, o Opening) (*Setup, error)) Task {
	return part.NewType(name, defaults, func(o Opening) any { return o.Config }, open)
}

// WithPreset makes a [Presetter] of a task. preset makes a new Preset at each call.
func WithPreset(t Task, preset func() Preset) Presetter { return presetTask{t, preset} }

type presetTask struct {
	Task
	preset func() Preset
}

// Preset is the settings that the task brings for a run.
func (t presetTask) Preset() Preset { return t.preset() }
