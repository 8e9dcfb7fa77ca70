package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/remote"
)

// oneOf lists names as a sentence does: "a", "a or b", "a, b or c"; "none is registered" without any.
func oneOf(names []string) string {
	switch n := len(names); n {
	case 0:
		return "none is registered"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
}

// wrongType says that a section's type is none of the known.
func wrongType(section, name, typ string, known []string) *ValueError {
	problem := fmt.Sprintf("%q: want %s", typ, oneOf(known))
	if typ == name {
		problem += "; without this key the section's name is its type"
	}
	return &ValueError{Key: section + "." + name + ".type", Problem: problem}
}

// shape makes the sections that the sources name, each with the keys of its type. Without a task in the sources it makes
// those of otherwise. What names no type is a fault, and the keys below it are not looked at.
func (c *Config) shape(l *loader, otherwise []string) {
	chosen := l.names("tasks")
	if len(chosen) == 0 {
		chosen = otherwise
	}
	c.Tasks, c.Agents, c.Tools = map[string]*Task{}, map[string]*Agent{}, map[string]*Tool{}
	c.Services = map[string]*remote.Service{}
	for _, name := range l.names("services") {
		c.Services[name] = new(remote.DefaultService())
	}
	agentNames, toolNames := l.names("agents"), l.names("tools")
	for _, name := range chosen {
		typ := l.text("tasks."+name+".type", name)
		door, ok := c.doors.Task(typ)
		if !ok {
			l.refuse("tasks."+name, wrongType("tasks", name, typ, parts.Names(c.doors.Tasks)))
			continue
		}
		preset := c.doors.Preset(typ)
		t := newTask()
		t.Type, t.Own, t.Agent, t.Tools = typ, door.Config(), preset.Agent, slices.Clone(preset.Tools)
		t.Reward.Type = l.text("tasks."+name+".reward.type", preset.Reward)
		c.Tasks[name] = t
		if reward, ok := c.doors.Reward(t.Reward.Type); ok {
			t.Reward.Own = reward.Config()
		} else if t.Reward.Type != "" {
			l.refuse("tasks."+name+".reward", &ValueError{
				Key: "tasks." + name + ".reward.type", Problem: fmt.Sprintf("%q: want %s", t.Reward.Type, oneOf(parts.Names(c.doors.Rewards))),
			})
		}
		if agent := l.text("tasks."+name+".agent", t.Agent); slices.Contains(parts.Names(c.doors.Agents), agent) {
			agentNames = append(agentNames, agent)
		}
		for _, tool := range l.list("tasks."+name+".tools", t.Tools) {
			if slices.Contains(parts.Names(c.doors.Tools), tool) {
				toolNames = append(toolNames, tool)
			}
		}
	}
	for _, name := range agentNames {
		typ := l.text("agents."+name+".type", name)
		if door, ok := c.doors.Agent(typ); !ok {
			l.refuse("agents."+name, wrongType("agents", name, typ, parts.Names(c.doors.Agents)))
		} else if c.Agents[name] == nil {
			c.Agents[name] = &Agent{Type: typ, Own: door.Config()}
		}
	}
	for _, name := range toolNames {
		typ := l.text("tools."+name+".type", name)
		if door, ok := c.doors.Tool(typ); !ok {
			l.refuse("tools."+name, wrongType("tools", name, typ, parts.Names(c.doors.Tools)))
		} else if c.Tools[name] == nil {
			c.Tools[name] = newTool()
			c.Tools[name].Type, c.Tools[name].Own = typ, door.Config()
		}
	}
}

// presets are the settings that the tasks' types bring, by key. Of several numbers for a key the greatest holds.
func (c *Config) presets() map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		for key, value := range c.doors.Preset(c.Tasks[name].Type).Settings {
			if was, twice := number(out[key]); twice {
				if is, ok := number(value); ok && is <= was {
					continue
				}
			}
			out[key] = value
		}
	}
	return out
}

// number is a setting's value as a number; ok is false for any other.
func number(v any) (x float64, ok bool) {
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

// Reference is a configuration with a section for each type of task, agent and tool, under the type's name: all keys that
// there are, but for those of rewards that no task has by default.
func Reference(doors parts.Registry) *Config {
	cfg, _, err := Resolve(doors, Sources{
		Tasks: parts.Names(doors.Tasks), Flags: typesAsFlags(doors),
	})
	if err != nil {
		panic(fmt.Sprintf("the defaults: %v", err)) // of the program's own parts, which a test reads
	}
	return cfg
}

// typesAsFlags name every type of agent and tool.
func typesAsFlags(doors parts.Registry) map[string]string {
	flags := map[string]string{}
	for _, name := range parts.Names(doors.Agents) {
		flags["agents."+name+".type"] = name
	}
	for _, name := range parts.Names(doors.Tools) {
		flags["tools."+name+".type"] = name
	}
	return flags
}
