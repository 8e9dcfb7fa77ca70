package config

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers/agents"
)

// validateRoles refuses roles that no agent of the run's tasks plays.
func (c *Config) validateRoles(f *faults) {
	named := c.Trainer.EpisodeAgents()
	if len(named) == 0 {
		return
	}
	roles, known := c.playedRoles()
	if !known {
		return
	}
	for i, name := range named {
		problem := fmt.Sprintf("%q: no agent of the run's tasks plays this role: want %s", name, joinWithOr(roles))
		if len(roles) == 0 {
			problem = fmt.Sprintf("%q: no agent of the run's tasks plays roles: name one that does, such as team", name)
		}
		f.addUnless(fmt.Sprintf("trainer.advantage.episode_agents[%d]", i), slices.Contains(roles, name), problem)
	}
}

// playedRoles returns the roles that the agents of the run's tasks play, sorted; known is false where a task brings its own agent.
func (c *Config) playedRoles() (roles []string, known bool) {
	for _, task := range c.Active() {
		section := c.Agents[c.Tasks[task].Agent]
		if section == nil {
			return nil, false
		}
		if door, ok := c.registry.Agent(section.Type); ok {
			if cast, ok := door.(agents.Cast); ok {
				roles = append(roles, cast.Roles()...)
			}
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles), true
}
