// Package builtin holds the parts that the program brings: each is named in a configuration by its type's name.
package builtin

import (
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/recorded"
	"github.com/weir-rl/weir/producers/agents"
	chatagent "github.com/weir-rl/weir/producers/agents/chat"
	notebookagent "github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/agents/outside"
	searchagent "github.com/weir-rl/weir/producers/agents/search"
	selfplayagent "github.com/weir-rl/weir/producers/agents/selfplay"
	teamagent "github.com/weir-rl/weir/producers/agents/team"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/rewards/code"
	"github.com/weir-rl/weir/producers/rewards/httpreward"
	"github.com/weir-rl/weir/producers/rewards/math"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/producers/rewards/qa"
	selfplayreward "github.com/weir-rl/weir/producers/rewards/selfplay"
	teamreward "github.com/weir-rl/weir/producers/rewards/team"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/api"
	"github.com/weir-rl/weir/producers/tasks/atlas"
	"github.com/weir-rl/weir/producers/tasks/corpus"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/dataset"
	"github.com/weir-rl/weir/producers/tasks/ledger"
	"github.com/weir-rl/weir/producers/tasks/library"
	"github.com/weir-rl/weir/producers/tasks/questions"
	"github.com/weir-rl/weir/producers/tasks/selfplay"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/tools/calculator"
	"github.com/weir-rl/weir/producers/tools/files"
	"github.com/weir-rl/weir/producers/tools/httptool"
	"github.com/weir-rl/weir/producers/tools/mcp"
	"github.com/weir-rl/weir/producers/tools/python"
	"github.com/weir-rl/weir/producers/tools/retrieve"
	"github.com/weir-rl/weir/producers/tools/shell"
	"github.com/weir-rl/weir/producers/tools/simulated"
	"github.com/weir-rl/weir/producers/tools/sqlite"
	"github.com/weir-rl/weir/producers/tools/starlark"
	"github.com/weir-rl/weir/producers/tools/verltool"
)

// Doors are the built-in parts.
func Doors() parts.Registry {
	return parts.Registry{
		Tasks: []tasks.Task{
			library.Type(),
			countries.Type(),
			corpus.Type(),
			questions.FileType(),
			questions.ServiceType(),
			dataset.Type(),
			api.Type(),
			ledger.Type(),
			atlas.Type(),
			selfplay.Type(),
			recorded.Type(),
		},
		Agents: []agents.Type{
			searchagent.Type(),
			chatagent.Type(),
			notebookagent.Type(),
			selfplayagent.Type(),
			teamagent.Type(),
			outside.CommandType(),
			outside.HTTPType(),
			outside.ExternalType(),
		},
		Tools: []tools.Type{
			tools.SearchType(),
			httptool.Type(),
			calculator.Type(),
			tools.FinishType(),
			starlark.Type(),
			sqlite.Type(),
			retrieve.Type(),
			verltool.Type(),
			mcp.Type(),
			python.Type(),
			shell.Type(),
			files.Type(),
			simulated.Type(),
		},
		Rewards: []rewards.Type{
			weighted.Type(),
			httpreward.Type(),
			posted.Type(),
			math.Type(),
			math.GSM8KType(),
			qa.Type(),
			selfplayreward.Type(),
			teamreward.Type(),
			code.Type(),
		},
		Engines: []parts.Engine{{Name: "native", Open: nativeEngine}, {Name: "torch", Open: torchEngine}},
		Default: library.Name,
		Quick:   countries.Name,
	}
}

// nativeEngine is the engine in Go.
func nativeEngine(o parts.EngineOpening) (gpu.Backend, error) {
	options := startingWeights(o)
	options.LoRA, options.DType, options.Dot = o.LoRA, gpu.DType(o.Native.DType), o.Native.Dot
	return native.Backend{Options: options}, nil
}

// torchEngine is the engine over PyTorch, which draws the same starting weights.
func torchEngine(o parts.EngineOpening) (gpu.Backend, error) {
	return torch.Backend{Config: o.Torch, Threads: o.Threads, Start: startingWeights(o), LoRA: o.LoRA}, nil
}

func startingWeights(o parts.EngineOpening) native.Options {
	return native.Options{
		Seed: o.Seed, Threads: o.Threads, Recompute: o.Native.Recompute,
		Init: native.Init{EmbeddingStd: o.EmbeddingStd, OutputFromValue: o.OutputFromValue},
	}
}
