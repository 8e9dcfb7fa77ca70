// Package weir trains LLM agents by reinforcement learning over a message stream. It is the front door for programs with parts of their
// own: a program that calls [Main] is the whole command line of weir with these parts in it.
//
//	func main() { weir.Main(sums{}) }
//
// Here sums is a [Task]: it makes questions, a tokenizer, and the other parts of its episodes. `go run . up` then trains an agent on it,
// `go run . eval` scores it and `go run . chat` asks it; each of its keys is a line of a file, a variable and a flag.
//
// A program that is more than the command line has a run as a value, from [Open]:
//
//	run, err := weir.Open(ctx, weir.Config{Keys: map[string]any{"trainer.steps": 40}}, weir.Parts{Tasks: []weir.Task{sums{}}})
//	if err == nil {
//		err = run.Up(ctx)
//	}
package weir

import (
	"os"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/cli"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
)

// Task is something to train an agent on.
type Task = tasks.Task

// Opening has the arguments that a [Task] is opened with.
type Opening = tasks.Opening

// Setup is the result of opening a [Task].
type Setup = tasks.Setup

// AgentType is a kind of agent that a configuration can name.
type AgentType = agents.Type

// ToolType is a kind of tool that a configuration can name.
type ToolType = tools.Type

// RewardType is a kind of reward that a configuration can name.
type RewardType = rewards.Type

// Estimator is an advantage of the program's own: [advantage.PerGroup] makes an Estimator of a function.
type Estimator = advantage.Foreign

// Tokenizer turns the text of a [Setup] into tokens.
type Tokenizer = tasks.Tokenizer

// Loss is a policy loss of the program's own: [loss.PerToken] makes a Loss of a function.
type Loss = loss.Foreign

// Engine is a backend that trains and samples a model.
type Engine = parts.Engine

// EngineOpening has the arguments that an [Engine] is opened with.
type EngineOpening = parts.EngineOpening

// App is the command line with parts of the user's own beside the built-in ones.
type App Parts

// Parts are parts of the user's own beside the built-in ones, for a run of [Open] or for the command line of an [App]. A part with the name
// of a built-in part takes its place.
type Parts struct {
	// Tasks are named in the section tasks of a configuration. A run whose configuration names no task trains on the first; without any it
	// is the built-in demonstration.
	Tasks []Task
	// Agents and Tools are named in the sections agents and tools, Rewards in the section reward of a task. A task need not
	// name any: its Setup may bring them.
	Agents  []AgentType
	Tools   []ToolType
	Rewards []RewardType
	// Estimators are named by trainer.advantage.name and Losses by trainer.loss.name, beside the stock ones.
	Estimators []Estimator
	Losses     []Loss
	// Engines are named by model.engine.
	Engines []Engine
}

// Main runs the command line of this process with tasks of the user's own, and exits with its status.
func Main(own ...Task) { App{Tasks: own}.Main() }

// Main runs the command line of this process and exits with its status.
func (a App) Main() { os.Exit(a.Run()) }

// Run runs the command line of this process and returns its exit status.
func (a App) Run() int { return cli.Main(Parts(a).joinRegistry()) }

// joinRegistry has the parts before the built-in ones.
func (p Parts) joinRegistry() parts.Registry {
	r := builtin.Doors()
	if len(p.Tasks) > 0 {
		r.Default = p.Tasks[0].Name()
	}
	r.Tasks = append(p.Tasks, r.Tasks...)
	r.Agents = append(p.Agents, r.Agents...)
	r.Tools = append(p.Tools, r.Tools...)
	r.Rewards = append(p.Rewards, r.Rewards...)
	r.Estimators, r.Losses = p.Estimators, p.Losses
	r.Engines = append(p.Engines, r.Engines...)
	return r
}
