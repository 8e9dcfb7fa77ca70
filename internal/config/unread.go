package config

import (
	"maps"
	"slices"
	"strings"
)

// Unread are the keys that somebody set, as origins has it, and that nothing in the run depends on: what the chosen
// algorithm, task or model does not read. A file's value that is the default is not counted: whole configurations are
// files too.
func (c *Config) Unread(origins map[string]string) []*ValueError {
	changed := Changed(c)
	var out []*ValueError
	for _, key := range slices.Sorted(maps.Keys(Values(c))) {
		from := origins[key]
		typed := strings.HasPrefix(from, "--") || strings.HasPrefix(from, Prefix)
		if from == "" || !typed && !changed[key] {
			continue
		}
		if why := c.unread(key); why != "" {
			out = append(out, &ValueError{Key: key, Origin: from, Problem: why})
		}
	}
	return out
}

// unread says why nothing depends on a key, "" if something does.
func (c *Config) unread(key string) string {
	section, name, _ := strings.Cut(key, ".")
	switch {
	case section == "trainer":
		if why := c.Trainer.Unread(name); why != "" {
			return why
		}
		if of := c.Trainer.Advantage; name == "advantage.name" && of.Facts().Process && c.noProcessReward() {
			return "the tools of task " + strings.Join(c.Active(), " and ") + " give no process reward, which is what advantage " + of.Name +
				" is for: only a producer of your own does"
		}
	case section == "model" && name != "engine" && name != "folder" && !strings.HasPrefix(name, "lora.") && c.Model.Folder != "":
		return "model.folder says what the model is"
	case section == "native" && c.Model.Engine != EngineNative:
		return "model.engine is " + c.Model.Engine
	case section == "tasks":
		return c.unreadOfTask(name)
	case section == "agents":
		agent, _, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(c.Active(), func(task string) bool { return c.Tasks[task].Agent == agent }) {
			return "no task names the agent " + agent
		}
	case section == "tools":
		tool, _, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(c.Active(), func(task string) bool { return slices.Contains(c.Tasks[task].Tools, tool) }) {
			return "no task names the tool " + tool
		}
	}
	return ""
}

// unreadOfTask is unread for a key below tasks.
func (c *Config) unreadOfTask(key string) string {
	name, rest, _ := strings.Cut(key, ".")
	task := c.Tasks[name]
	if task.Weight == 0 {
		return "tasks." + name + ".weight is 0"
	}
	if r, ok := task.Reward.Own.(unreader); ok && strings.HasPrefix(rest, "reward.") {
		if why := r.Unread(strings.TrimPrefix(rest, "reward.")); why != "" {
			return "tasks." + name + ".reward." + why
		}
	}
	return ""
}

// unreader are the keys of a type that knows which of them nothing depends on.
type unreader interface {
	// Unread says why nothing depends on a key, beginning with the other key that says so; "" if something does.
	Unread(key string) string
}

// noProcessReward says whether every tool of the run is of a type that is known to give no process reward.
func (c *Config) noProcessReward() bool {
	return !slices.ContainsFunc(c.Active(), func(task string) bool {
		tools := c.Tasks[task].Tools
		return len(tools) == 0 || slices.ContainsFunc(tools, func(name string) bool {
			tool := c.Tools[name]
			if tool == nil {
				return true
			}
			_, gives := tool.Own.(interface{ NoProcessReward() })
			return !gives
		})
	})
}
