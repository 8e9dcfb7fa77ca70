package assembly

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// OpenTools opens tools by their names; without any, those of a task.
func (s *Run) OpenTools(ctx context.Context, names []string, taskName string) ([]producers.Tool, error) {
	if len(names) == 0 {
		if section := s.Config.Tasks[cmp.Or(taskName, s.Config.Active()[0])]; section != nil {
			names = section.Tools
		}
	}
	if len(names) == 0 {
		return nil, fault.Usage(errors.New("the task names no tools in the configuration: name them, weir tool lists them"))
	}
	var out []producers.Tool
	known := map[string]bool{}
	for _, name := range names {
		opened, err := s.OpenTool(ctx, name, taskName)
		if err != nil {
			return nil, err
		}
		for _, t := range opened {
			if known[t.Spec().Name] {
				return nil, fault.Usagef("two tools are named %s", t.Spec().Name)
			}
			known[t.Spec().Name] = true
			out = append(out, t)
		}
	}
	return out, nil
}

// OpenTool opens a tool for a task of the configuration; the task's agent and model are not needed.
func (s *Run) OpenTool(ctx context.Context, name, taskName string) ([]producers.Tool, error) {
	if s.byHand == nil {
		s.byHand = workspace.New(s.Config.Sandbox)
	}
	o := opener{doors: s.Parts, cfg: s.Config, log: s.Log, spaces: s.byHand}
	setups, err := o.openSetups(ctx, nil)
	if err != nil {
		return nil, config.Invalid(err)
	}
	active := s.Config.Active()
	at := slices.Index(active, cmp.Or(taskName, active[0]))
	if at < 0 || taskName == "" && len(active) > 1 && s.needsTask(name) {
		return nil, fault.Usagef("--task %q: the run has the tasks %s", taskName, strings.Join(active, ", "))
	}
	t := &Task{Name: active[at], Setup: setups[at]}
	if s.Config.Tools[name] == nil {
		for _, tool := range t.Tools {
			if tool.Spec().Name == name {
				return []producers.Tool{tool}, nil
			}
		}
		door, ok := s.Parts.Tool(name)
		if !ok {
			return nil, fault.Usagef("there is no tool %q: weir tool lists them", name)
		}
		s.Config.Tools = maps.Clone(s.Config.Tools)
		if s.Config.Tools == nil {
			s.Config.Tools = map[string]*config.Tool{}
		}
		s.Config.Tools[name] = config.DefaultTool(door)
	}
	if err := o.openTool(ctx, t, name); err != nil {
		return nil, config.Invalid(err)
	}
	if s.byHand.Claimed() {
		if _, err := s.byHand.Ready(ctx); err != nil {
			return nil, config.Invalid(err)
		}
	}
	return t.plain, nil
}

// CloseSandboxes ends the sandboxes of tools that were opened by openTool.
func (s *Run) CloseSandboxes() {
	if s.byHand == nil {
		return
	}
	if err := s.byHand.Close(); err != nil {
		s.Log.Warn("the sandboxes did not close well", "err", err)
	}
}

// needsTask says that a tool cannot be told apart without the task: what several tasks have is each task's own.
func (s *Run) needsTask(name string) bool {
	return s.Config.Tools[name] == nil || s.Config.Tools[name].Type == "search"
}

// CloseTool ends what a tool holds for its lifetime, if it holds anything.
func (s *Run) CloseTool(t producers.Tool) {
	if closer, ok := t.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			s.Log.Warn("the tool did not close well", "err", err)
		}
	}
}
