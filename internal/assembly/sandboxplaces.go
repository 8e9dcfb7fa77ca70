package assembly

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers/tools"
)

// FewPlaces has a line for each task whose episodes take several places among sandbox.most, where the episodes at once of a process with
// so many producers can hold all places while each waits for another; and for each tool with room for fewer sessions than that, whose
// episodes take other places too. trains is whether the process has the trainer too.
func FewPlaces(cfg *config.Config, producers int, trains bool) []string {
	scored, ofScores := 0, ""
	switch {
	case cfg.Eval.Every == 0:
	case cfg.Eval.At == config.EvalAtProducers:
		scored = cfg.Producer.Evaluations * producers
	case trains: // its scores run in the sandboxes of the producers
		scored = min(cfg.Eval.Concurrency, cfg.Eval.Questions)
		ofScores = fmt.Sprintf(", %d of them of scores (eval.concurrency),", scored)
	}
	episodes := min(cfg.Producer.Concurrency*producers, cfg.Trainer.Tickets()) + scored
	shared := sharedHolders(cfg, "")
	room := cfg.Sandbox.Most - len(shared)
	beside := ""
	if len(shared) > 0 {
		beside = " beside the shared " + strings.Join(shared, ", ")
	}
	var lines []string
	for _, name := range cfg.Active() {
		holders := placeHolders(cfg, cfg.Tasks[name], "")
		lines = append(lines, fewSessions(cfg, name, holders, episodes, func(most int) int { return (most - scored) / producers })...)
		further := len(holders) - 1
		if further < 1 || room > episodes*further {
			continue
		}
		advice := fmt.Sprintf("set sandbox.most to %d or more", episodes*further+1+len(shared))
		fits := ((room-1)/further - scored) / producers
		if fits <= 0 && ofScores != "" {
			advice += ", or score elsewhere (eval.at: producers) or fewer at once"
		}
		if fits > 0 {
			advice += fmt.Sprintf(", or producer.concurrency to %d or less", fits)
		}
		lines = append(lines, fmt.Sprintf("an episode of task %s takes %d places (%s), and %d episodes at once%s%s can hold all %d of "+
			"sandbox.most while each waits for another, until its call fails: %s",
			name, len(holders), strings.Join(holders, ", "), episodes, ofScores, beside, cfg.Sandbox.Most, advice))
	}
	return lines
}

// fewSessions has a line for each tool of a task that has room for fewer sessions than there are episodes at once, where an episode takes
// other places, by holders, too: then it waits in its own time. fits says how many episodes a producer may play for so many sessions.
func fewSessions(cfg *config.Config, task string, holders []string, episodes int, fits func(most int) int) []string {
	var lines []string
	bounded := boundedTools(cfg, cfg.Tasks[task], "")
	for i, tool := range bounded {
		others := slices.Clone(holders)
		for j, other := range bounded {
			if j != i {
				others = append(others, "tools."+other.name)
			}
		}
		if len(others) == 0 || tool.most >= episodes {
			continue
		}
		advice := ""
		if n := fits(tool.most); n > 0 {
			advice = fmt.Sprintf(", or set producer.concurrency to %d or less", n)
		}
		lines = append(lines, fmt.Sprintf("tools.%s has room for %d sessions of task %s, of whose episodes %d at once take "+
			"other places (%s) too: those that have one wait for its room in their own time: raise tools.%s.workers until it has room for %d%s",
			tool.name, tool.most, task, episodes, strings.Join(others, ", "), tool.name, episodes, advice))
	}
	return lines
}

// workerPlaces is how many places the sessions of a tool worker share, and how many of them a session of each task takes; tasks that take
// none are left out.
func workerPlaces(cfg *config.Config) (most int, places map[string]int) {
	places = map[string]int{}
	for _, name := range cfg.Active() {
		if n := len(placeHolders(cfg, cfg.Tasks[name], config.OnWorkers)); n > 0 {
			places[name] = n
		}
	}
	return cfg.Sandbox.Most - len(sharedHolders(cfg, config.OnWorkers)), places
}

// sharedHolders names the tools that run there and take a place for all episodes together, once each.
func sharedHolders(cfg *config.Config, on string) []string {
	var holders []string
	for _, task := range cfg.Active() {
		for _, name := range cfg.Tasks[task].Tools {
			section := cfg.Tools[name]
			if section != nil && section.On == on && startsSandbox(section.Own) && servesAll(section.Own) {
				holders = append(holders, "tools."+name)
			}
		}
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}

// placeHolders names the parts of a task that run there, which is a value of tools.NAME.on, and take a place of their own in each episode;
// the tools that share the episode's sandbox are one of them.
func placeHolders(cfg *config.Config, t *config.Task, on string) []string {
	var holders, together []string
	if agent := cfg.Agents[t.Agent]; on == "" && agent != nil && startsSandbox(agent.Own) {
		holders = append(holders, "agents."+t.Agent)
	}
	for _, name := range t.Tools {
		section := cfg.Tools[name]
		switch {
		case section == nil || section.On != on:
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

// mostSessions is how many sessions of a task the tools that are placed on workers have room for; a task is left out where all have.
func mostSessions(cfg *config.Config) map[string]int {
	most := map[string]int{}
	for _, name := range cfg.Active() {
		for _, tool := range boundedTools(cfg, cfg.Tasks[name], config.OnWorkers) {
			if known, ok := most[name]; !ok || tool.most < known {
				most[name] = tool.most
			}
		}
	}
	return most
}

// boundedTool is a tool that has room for so many sessions of a task at once.
type boundedTool struct {
	name string
	most int
}

// boundedTools are the tools of a task that run there and have room for so many sessions at once.
func boundedTools(cfg *config.Config, t *config.Task, on string) []boundedTool {
	var found []boundedTool
	for _, name := range t.Tools {
		section := cfg.Tools[name]
		if section == nil || section.On != on {
			continue
		}
		if by, ok := section.Own.(tools.Bounded); ok {
			found = append(found, boundedTool{name, by.MostSessions()})
		}
	}
	return found
}

// servesAll reports whether a tool's configuration gives all episodes the same session.
func servesAll(own any) bool {
	by, ok := own.(tools.Common)
	return ok && by.Common()
}
