package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/remote"
)

// joinWithOr joins names as in a sentence: "a", "a or b", "a, b or c"; "none is registered" without any.
func joinWithOr(names []string) string {
	switch n := len(names); n {
	case 0:
		return "none is registered"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
}

// wrongType is the fault of a section with an unknown type.
func wrongType(section, name, typ string, known []string) *ValueError {
	problem := fmt.Sprintf("%q: want %s", typ, joinWithOr(known))
	if typ == name {
		problem += "; without this key the section's name is its type"
	}
	return &ValueError{Key: section + "." + name + ".type", Problem: problem}
}

// shapeSections makes the sections that the sources name, each with the keys of its type. Without a task in the sources it makes the
// sections of otherwise. A section without a valid type is a fault, and the keys below it are not checked.
func (c *Config) shapeSections(l *loader, otherwise []string) {
	chosen := l.sectionNames("tasks")
	if len(chosen) == 0 {
		chosen = otherwise
	}
	c.Tasks, c.Agents, c.Tools = map[string]*Task{}, map[string]*Agent{}, map[string]*Tool{}
	c.Services = map[string]*remote.Service{}
	for _, name := range l.sectionNames("services") {
		c.Services[name] = new(remote.DefaultService())
	}
	agentNames, toolNames := l.sectionNames("agents"), l.sectionNames("tools")
	for _, name := range chosen {
		typ := l.lastText("tasks."+name+".type", name)
		door, ok := c.registry.Task(typ)
		if !ok {
			l.refuseSection("tasks."+name, wrongType("tasks", name, typ, parts.Names(c.registry.Tasks)))
			continue
		}
		preset := c.registry.Preset(typ)
		t := newTaskSection()
		t.Type, t.Own, t.Agent, t.Tools = typ, door.Config(), preset.Agent, slices.Clone(preset.Tools)
		t.Reward.Type = l.lastText("tasks."+name+".reward.type", preset.Reward)
		l.leaveOutWritten("tasks."+name+".reward", t.Reward.Type)
		c.Tasks[name] = t
		if reward, ok := c.registry.Reward(t.Reward.Type); ok {
			t.Reward.Own = reward.Config()
		} else if t.Reward.Type != "" {
			l.refuseSection("tasks."+name+".reward", &ValueError{
				Key: "tasks." + name + ".reward.type", Problem: fmt.Sprintf("%q: want %s", t.Reward.Type, joinWithOr(parts.Names(c.registry.Rewards))),
			})
		}
		if agent := l.lastText("tasks."+name+".agent", t.Agent); slices.Contains(parts.Names(c.registry.Agents), agent) {
			agentNames = append(agentNames, agent)
		}
		for _, tool := range l.lastList("tasks."+name+".tools", t.Tools) {
			if slices.Contains(parts.Names(c.registry.Tools), tool) {
				toolNames = append(toolNames, tool)
			}
		}
	}
	for _, name := range agentNames {
		typ := l.lastText("agents."+name+".type", name)
		l.leaveOutWritten("agents."+name, typ)
		if door, ok := c.registry.Agent(typ); !ok {
			l.refuseSection("agents."+name, wrongType("agents", name, typ, parts.Names(c.registry.Agents)))
		} else if c.Agents[name] == nil {
			c.Agents[name] = &Agent{Type: typ, Own: door.Config()}
		}
	}
	for _, name := range toolNames {
		typ := l.lastText("tools."+name+".type", name)
		if door, ok := c.registry.Tool(typ); !ok {
			l.refuseSection("tools."+name, wrongType("tools", name, typ, parts.Names(c.registry.Tools)))
		} else if c.Tools[name] == nil {
			c.Tools[name] = newToolSection()
			c.Tools[name].Type, c.Tools[name].Own = typ, door.Config()
		}
	}
}

// taskPresets returns the settings that the tasks' types bring, by key. Of several numbers for a key the greatest holds.
func (c *Config) taskPresets() map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		for key, value := range c.registry.Preset(c.Tasks[name].Type).Settings {
			if was, twice := numberOf(out[key]); twice {
				if is, ok := numberOf(value); ok && is <= was {
					continue
				}
			}
			out[key] = value
		}
	}
	return out
}

// numberOf returns a setting's value as a number; ok is false for any other.
func numberOf(v any) (x float64, ok bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Reference is a configuration with a section for each type of task, agent and tool, under the type's name: all keys, except keys of
// rewards that no task has by default.
func Reference(registry parts.Registry) *Config {
	cfg, _, err := Resolve(registry, Sources{
		Tasks: parts.Names(registry.Tasks), Flags: typesAsFlags(registry),
	})
	if err != nil {
		panic(fmt.Sprintf("the defaults: %v", err)) // of the program's own parts, which a test reads
	}
	return cfg
}

// typesAsFlags name every type of agent and tool.
func typesAsFlags(registry parts.Registry) map[string]string {
	flags := map[string]string{}
	for _, name := range parts.Names(registry.Agents) {
		flags["agents."+name+".type"] = name
	}
	for _, name := range parts.Names(registry.Tools) {
		flags["tools."+name+".type"] = name
	}
	return flags
}
