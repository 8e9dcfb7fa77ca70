package assembly

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// ToolBench opens tools outside of a run, for people and for other programs.
type ToolBench struct {
	cfg    *config.Config
	parts  parts.Registry
	log    *slog.Logger
	spaces *workspace.Manager // the tools' sandboxes
}

// NewToolBench opens tools as this process is configured. Call [ToolBench.CloseSandboxes] at the end.
func (s *Run) NewToolBench() *ToolBench {
	return &ToolBench{s.Config, s.Parts, s.Log, workspace.New(s.Config.Sandbox)}
}

// OpenTools opens tools by their names; without any, the tools of a task.
func (b *ToolBench) OpenTools(ctx context.Context, names []string, taskName string) ([]producers.Tool, error) {
	if len(names) == 0 {
		if section := b.cfg.Tasks[cmp.Or(taskName, b.cfg.Active()[0])]; section != nil {
			names = section.Tools
		}
	}
	if len(names) == 0 {
		return nil, fault.Usage(errors.New("the task names no tools in the configuration: name them, weir tool lists them"))
	}
	var out []producers.Tool
	known := map[string]bool{}
	for _, name := range names {
		opened, err := b.OpenTool(ctx, name, taskName)
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
func (b *ToolBench) OpenTool(ctx context.Context, name, taskName string) ([]producers.Tool, error) {
	o := opener{doors: b.parts, cfg: b.cfg, log: b.log, spaces: b.spaces}
	setups, err := o.openSetups(ctx, nil)
	if err != nil {
		return nil, config.Invalid(err)
	}
	active := b.cfg.Active()
	at := slices.Index(active, cmp.Or(taskName, active[0]))
	if at < 0 || taskName == "" && len(active) > 1 && b.needsTask(name) {
		return nil, fault.Usagef("--task %q: the run has the tasks %s", taskName, strings.Join(active, ", "))
	}
	t := &Task{Name: active[at], Setup: setups[at]}
	if b.cfg.Tools[name] == nil {
		for _, tool := range t.Tools {
			if tool.Spec().Name == name {
				return []producers.Tool{tool}, nil
			}
		}
		door, ok := b.parts.Tool(name)
		if !ok {
			return nil, fault.Usagef("there is no tool %q: weir tool lists them", name)
		}
		b.cfg.Tools = maps.Clone(b.cfg.Tools)
		if b.cfg.Tools == nil {
			b.cfg.Tools = map[string]*config.Tool{}
		}
		b.cfg.Tools[name] = config.DefaultTool(door)
	}
	if err := o.openTool(ctx, t, name); err != nil {
		return nil, config.Invalid(err)
	}
	if b.spaces.Claimed() {
		if _, err := b.spaces.Ready(ctx); err != nil {
			return nil, config.Invalid(err)
		}
	}
	return t.plain, nil
}

// CloseSandboxes ends the sandboxes of tools that were opened by openTool.
func (b *ToolBench) CloseSandboxes() {
	if err := b.spaces.Close(); err != nil {
		b.log.Warn("the sandboxes did not close well", "err", err)
	}
}

// needsTask says that a tool cannot be told apart without the task: a tool that several tasks have is a different tool for each task.
func (b *ToolBench) needsTask(name string) bool {
	return b.cfg.Tools[name] == nil || b.cfg.Tools[name].Type == "search"
}

// CloseTool closes the resources that a tool holds for its lifetime, if it holds any.
func (b *ToolBench) CloseTool(t producers.Tool) {
	if closer, ok := t.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			b.log.Warn("the tool did not close well", "err", err)
		}
	}
}
