// Package builtin holds the parts that the program brings: each is named in a configuration by its type's name.
package builtin

import (
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/agents"
	searchagent "github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/corpus"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/library"
	"github.com/weir-rl/weir/producers/tools"
)

// Doors are the built-in parts.
func Doors() parts.Registry {
	return parts.Registry{
		Tasks:   []tasks.Task{library.Type{}, countries.Type{}, corpus.Type{}},
		Agents:  []agents.Type{searchagent.Type{}},
		Tools:   []tools.Type{tools.SearchType{}},
		Rewards: []rewards.Type{weighted.Type{}},
		Default: library.Name,
		Quick:   countries.Name,
	}
}
