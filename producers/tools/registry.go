package tools

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers"
)

// Registry knows tools by name, so that a configuration can ask for them. The zero value is empty.
type Registry struct {
	tools map[string]producers.Tool
}

// Register adds a tool under its spec's name. A name that is taken, or empty, is refused.
func (r *Registry) Register(tool producers.Tool) error {
	name := tool.Spec().Name
	if name == "" {
		return errors.New("register a tool: it has no name")
	}
	if r.tools[name] != nil {
		return fmt.Errorf("register a tool: the name %q is taken", name)
	}
	if r.tools == nil {
		r.tools = map[string]producers.Tool{}
	}
	r.tools[name] = tool
	return nil
}

// Names are the registered names, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.tools)) }

// Tools returns the named tools in the order of the names; all unknown names are in the error.
func (r *Registry) Tools(names ...string) ([]producers.Tool, error) {
	var faults []error
	var out []producers.Tool
	for _, name := range names {
		if tool := r.tools[name]; tool != nil {
			out = append(out, tool)
			continue
		}
		faults = append(faults, fmt.Errorf("there is no tool named %q: there are %s", name, strings.Join(r.Names(), ", ")))
	}
	return out, errors.Join(faults...)
}
