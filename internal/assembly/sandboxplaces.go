package assembly

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers/tools"
)

// FewPlaces has a line for each task whose episodes take several places among sandbox.most, where the episodes at once can hold all places
// while each waits for another.
func FewPlaces(cfg *config.Config) []string {
	episodes := min(cfg.Producer.Concurrency, cfg.Trainer.Tickets())
	var lines []string
	for _, name := range cfg.Active() {
		holders := placeHolders(cfg, cfg.Tasks[name])
		further := len(holders) - 1
		if further < 1 || cfg.Sandbox.Most > episodes*further {
			continue
		}
		lines = append(lines, fmt.Sprintf("an episode of task %s takes %d places (%s), and %d episodes at once can hold all %d of sandbox.most while each waits "+
			"for another, until its call fails: set sandbox.most to %d or more, or producer.concurrency to %d or less",
			name, len(holders), strings.Join(holders, ", "), episodes, cfg.Sandbox.Most, episodes*further+1, max(1, (cfg.Sandbox.Most-1)/further)))
	}
	return lines
}

// placeHolders names the parts of a task that take a place of their own in each episode; the tools that share the episode's sandbox are
// one of them.
func placeHolders(cfg *config.Config, t *config.Task) []string {
	var holders, together []string
	if agent := cfg.Agents[t.Agent]; agent != nil && startsSandbox(agent.Own) {
		holders = append(holders, "agents."+t.Agent)
	}
	for _, name := range t.Tools {
		section := cfg.Tools[name]
		switch {
		case section == nil || section.On == config.OnWorkers:
		case slices.Contains(sandboxedTools, section.Type):
			together = append(together, "tools."+name)
		case startsSandbox(section.Own) && !servesAll(section.Own):
			holders = append(holders, "tools."+name)
		}
	}
	if len(together) > 0 {
		holders = append(holders, strings.Join(together, " and "))
	}
	return holders
}

// servesAll reports whether a tool's configuration gives all episodes the same session.
func servesAll(own any) bool {
	by, ok := own.(tools.Common)
	return ok && by.Common()
}
