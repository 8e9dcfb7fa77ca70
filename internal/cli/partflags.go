package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
)

// chosenParts are a task, and the agent and the tools that it is tried with.
type chosenParts struct {
	task, agent string
	tools       []string
}

// partFlags adds the flags that choose a task, its agent and its tools to a command.
func partFlags(cmd *cobra.Command) *chosenParts {
	p := &chosenParts{}
	cmd.Flags().StringVar(&p.task, "task", "", "which task, where the run has several")
	cmd.Flags().StringVar(&p.agent, "agent", "", "a section or type of agent, in place of the task's")
	cmd.Flags().StringSliceVar(&p.tools, "tools", nil, "sections or types of tools, in place of the task's")
	return p
}

// openProcess is of the run as load reads it.
func (p *chosenParts) openProcess(cmd *cobra.Command, a *app) (*assembly.Run, error) {
	cfg, err := p.loadConfig(cmd, a)
	if err != nil {
		return nil, err
	}
	return a.processOf(cfg)
}

// loadConfig reads the configuration of the run, with the agent and the tools in the place of the task's.
func (p *chosenParts) loadConfig(cmd *cobra.Command, a *app) (*config.Config, error) {
	cfg, err := a.loadWritten(cmd)
	if err != nil || p.agent == "" && p.tools == nil {
		return cfg, err
	}
	task := p.task
	if active := cfg.Active(); task == "" && len(active) == 1 {
		task = active[0]
	} else if !slices.Contains(active, task) {
		return nil, fault.Usagef("--task %q: the run has the tasks %s", task, strings.Join(active, ", "))
	}
	more := map[string]string{}
	if p.agent != "" {
		more["tasks."+task+".agent"] = p.agent
	}
	if p.tools != nil {
		more["tasks."+task+".tools"] = strings.Join(p.tools, ",")
	}
	return a.loadWrittenWith(cmd, more)
}
