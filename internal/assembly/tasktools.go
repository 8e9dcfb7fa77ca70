package assembly

import (
	"slices"

	"github.com/weir-rl/weir/producers"
)

// callableSpecs are the tools that the task's episodes may call.
func (t *Task) callableSpecs() []producers.ToolSpec {
	if t.limits.MaxTurns == 0 {
		return nil
	}
	return t.toolSpecs()
}

// toolSpecs are the tools of the task, whether or not its limits let episodes call them.
func (t *Task) toolSpecs() []producers.ToolSpec {
	var out []producers.ToolSpec
	for _, tool := range t.plain {
		out = append(out, tool.Spec())
	}
	return out
}

// toolNames are the names of the task's tools, sorted.
func (t *Task) toolNames() []string {
	var out []string
	for _, spec := range t.toolSpecs() {
		out = append(out, spec.Name)
	}
	slices.Sort(out)
	return out
}
