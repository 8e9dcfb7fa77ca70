// Package parts holds the parts that a configuration can name: tasks, agents, tools and rewards by the names of their types.
package parts

import (
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
)

// Registry holds the parts that a configuration can name. Each kind has its names to itself.
type Registry struct {
	Tasks   []tasks.Task
	Agents  []agents.Type
	Tools   []tools.Type
	Rewards []rewards.Type
	// Estimators and Losses are named by trainer.advantage.name and trainer.loss.name beside the stock ones.
	Estimators []advantage.Foreign
	Losses     []loss.Foreign
	// Engines are named by model.engine.
	Engines []Engine
	// Default is the type of the task that a run trains on when its configuration names none.
	Default string
	// AfterStage is called when a trainer has done a part of a step, with the part's name; nil calls nothing. Tests that break a run
	// set it, and no configuration can.
	AfterStage func(stage string)
	// Quick is the type of the task that benchmarks and fault tests train on: a task that is learnt in a few steps.
	Quick string
}

// Engine is a backend that model.engine can name.
type Engine struct {
	Name string
	// Keys returns a new pointer to a struct of the engine's own keys with their defaults: the section engines.<Name>, whose fields have the tag
	// koanf. The tags min, max and oneof bound their values, and a method Validate() error is asked too. Nil: the engine has none.
	Keys func() any
	// Open makes the backend.
	Open func(o EngineOpening) (gpu.Backend, error)
}

// EngineOpening has the arguments that a backend is opened with.
type EngineOpening struct {
	// Seed fixes the starting weights, and Threads bounds the cores that an engine uses; 0 is all.
	Seed    uint64
	Threads int
	// EmbeddingStd and OutputFromValue are the keys of these names of the section model.
	EmbeddingStd, OutputFromValue float64
	// Native is the section of that name.
	Native native.Config
	// Torch is the section torch.
	Torch torch.Config
	// Own are the engine's own keys, as Keys returned them, with the configured values; nil where Keys is nil.
	Own any
	// LoRA has the engines train adapters where its Rank is not 0.
	LoRA native.LoRA
}

// Engine finds a backend; ok is false where there is none.
func (r Registry) Engine(name string) (e Engine, ok bool) {
	for _, e := range r.Engines {
		if e.Name == name {
			return e, true
		}
	}
	return Engine{}, false
}

// EngineNames are the values of model.engine, sorted.
func (r Registry) EngineNames() []string {
	var out []string
	for _, e := range r.Engines {
		out = append(out, e.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// findByName finds a part by its type's name; ok is false where there is none.
func findByName[P Part](parts []P, name string) (p P, ok bool) {
	for _, p := range parts {
		if p.Name() == name {
			return p, true
		}
	}
	return p, false
}

// Names are the types' names, sorter.
func Names[P Part](parts []P) []string {
	var out []string
	for _, p := range parts {
		out = append(out, p.Name())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Task finds a type of task; ok is false where there is none.
func (r Registry) Task(name string) (tasks.Task, bool) { return findByName(r.Tasks, name) }

// Agent finds a type of agent; ok is false where there is none.
func (r Registry) Agent(name string) (agents.Type, bool) { return findByName(r.Agents, name) }

// Tool finds a type of tool; ok is false where there is none.
func (r Registry) Tool(name string) (tools.Type, bool) { return findByName(r.Tools, name) }

// Reward finds a type of reward; ok is false where there is none.
func (r Registry) Reward(name string) (rewards.Type, bool) { return findByName(r.Rewards, name) }

// Part is the interface of every kind of part: see [tasks.Task].
type Part interface {
	Name() string
	Config() any
}

// Parts are the types of a section: tasks, agents or tools.
func (r Registry) Parts(section string) []Part {
	var out []Part
	switch section {
	case "tasks":
		for _, p := range r.Tasks {
			out = append(out, p)
		}
	case "agents":
		for _, p := range r.Agents {
			out = append(out, p)
		}
	case "tools":
		for _, p := range r.Tools {
			out = append(out, p)
		}
	}
	return out
}

// Preset is the settings that a type of task brings for a run.
func (r Registry) Preset(taskType string) tasks.Preset {
	task, _ := r.Task(taskType)
	if with, ok := task.(tasks.Presetter); ok {
		return with.Preset()
	}
	return tasks.Preset{}
}
