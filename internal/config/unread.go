package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/library"
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
		if of := c.Trainer.Advantage; name == "advantage.name" && of.Facts().Process {
			return "the tools of task " + c.Task.Name + " give no process reward, which is what advantage " + of.Name +
				" is for: only a producer of your own does"
		}
	case section == "model" && name != "engine" && name != "folder" && name != "max_positions" && c.Model.Folder != "":
		return "model.folder says what the model is"
	case section == "task" && c.Task.Name != TaskSearch && slices.Contains([]string{"corpus", "questions", "demonstrations", "tokenizer"}, name):
		return "task " + c.Task.Name + " has data of its own: set task.name to " + TaskSearch
	case strings.HasPrefix(key, "task.library.") && c.Task.Name != library.Name,
		strings.HasPrefix(key, "task.countries.") && c.Task.Name != countries.Name:
		return "task.name is " + c.Task.Name
	case strings.HasPrefix(key, "task.reward.length_target.") && c.Task.Reward.Length == 0:
		return "task.reward.length is 0"
	}
	return ""
}
