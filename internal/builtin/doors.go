// Package builtin holds the parts that the program brings: each is named in a configuration by its type's name.
package builtin

import (
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/agents"
	chatagent "github.com/weir-rl/weir/producers/agents/chat"
	searchagent "github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/rewards/httpreward"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/corpus"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/library"
	"github.com/weir-rl/weir/producers/tasks/questions"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/tools/httptool"
)

// Doors are the built-in parts.
func Doors() parts.Registry {
	return parts.Registry{
		Tasks:   []tasks.Task{library.Type{}, countries.Type{}, corpus.Type{}, questions.FileType{}, questions.ServiceType{}},
		Agents:  []agents.Type{searchagent.Type{}, chatagent.Type{}},
		Tools:   []tools.Type{tools.SearchType{}, httptool.Type{}},
		Rewards: []rewards.Type{weighted.Type{}, httpreward.Type{}},
		Engines: []parts.Engine{{Name: "native", Open: nativeEngine}, {Name: "torch", Open: torchEngine}},
		Default: library.Name,
		Quick:   countries.Name,
	}
}

// nativeEngine is the engine in Go.
func nativeEngine(o parts.EngineOpening) (gpu.Backend, error) {
	options := startingWeights(o)
	options.LoRA = o.Native.LoRA
	return native.Backend{Options: options}, nil
}

// torchEngine is the engine over PyTorch, which draws the same starting weights.
func torchEngine(o parts.EngineOpening) (gpu.Backend, error) {
	return torch.Backend{Config: o.Torch, Threads: o.Threads, Start: startingWeights(o)}, nil
}

func startingWeights(o parts.EngineOpening) native.Options {
	return native.Options{
		Seed: o.Seed, Threads: o.Threads, Recompute: o.Native.Recompute,
		Init: native.Init{EmbeddingStd: o.EmbeddingStd, OutputFromValue: o.OutputFromValue},
	}
}
