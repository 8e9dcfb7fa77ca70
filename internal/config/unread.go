package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
)

// Unread returns the keys in origins on which nothing in the run depends, because the chosen algorithm, task or model does not read them. A
// file's value that is the default is not counted: whole configurations are files too.
func (c *Config) Unread(origins map[string]string) []*ValueError {
	changed := Changed(c)
	var out []*ValueError
	for _, key := range slices.Sorted(maps.Keys(Values(c))) {
		from := origins[key]
		typed := strings.HasPrefix(from, "--") || strings.HasPrefix(from, Prefix)
		if from == "" || !typed && !changed[key] {
			continue
		}
		if why := c.unreadReason(key); why != "" {
			out = append(out, &ValueError{Key: key, Origin: from, Problem: why})
		}
	}
	return out
}

// unreadReason returns the reason why nothing depends on a key, "" if something does.
func (c *Config) unreadReason(key string) string {
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
		if name == "publish.adapter" && c.Model.LoRA.Rank == 0 {
			return "model.lora.rank is 0: there are no adapters"
		}
		if name == "checkpoint.max_drift" && c.Model.Engine == EngineNative {
			return "model.engine is native, which learns a step again to the bit"
		}
	case section == "services":
		return c.unreadOfService(name)
	case section == "tasks":
		return c.unreadOfTask(name)
	case section == "agents":
		agent, rest, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(c.Active(), func(task string) bool { return c.Tasks[task].Agent == agent }) {
			return "no task names the agent " + agent
		}
		return check.Prefixed("agents."+agent, askUnread(c.Agents[agent].Own, rest))
	case section == "tools":
		tool, rest, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(c.Active(), func(task string) bool { return slices.Contains(c.Tasks[task].Tools, tool) }) {
			return "no task names the tool " + tool
		}
		return check.Prefixed("tools."+tool, c.Tools[tool].Unread(rest))
	default:
		return c.unreadOfProcess(section, name)
	}
	return ""
}

// unreadOfProcess is unreadReason for a key of the sections of the run's processes.
func (c *Config) unreadOfProcess(section, name string) string {
	switch {
	case section == "model":
		return c.Model.unreadReason(name)
	case section == "native" && c.Model.Engine != EngineNative && (name != "dot" || c.Inference.Engine != consumers.EngineNative):
		return "model.engine is " + c.Model.Engine
	case section == "torch" && c.Model.Engine == EngineNative && c.Inference.Engine != consumers.EngineTorch:
		return "model.engine is " + c.Model.Engine
	case section == "engines" && !strings.HasPrefix(name, c.Model.Engine+".") && !strings.HasPrefix(name, c.Inference.Engine+"."):
		return "model.engine is " + c.Model.Engine
	case section == "torch":
		return check.Prefixed(section, c.Torch.Unread(name))
	case section == "inference":
		return check.Prefixed(section, c.Inference.Unread(name))
	case section == "eval":
		return check.Prefixed(section, c.Eval.Unread(name))
	case section == "producer":
		return c.unreadOfProducer(name)
	case section == "broker":
		return check.Prefixed(section, c.Broker.Unread(name))
	case section == "toolworker" && !c.OnWorkers():
		return "no task has a tool whose on is " + OnWorkers
	case section == "tracing":
		return check.Prefixed(section, c.Tracing.Unread(name))
	case section == "view":
		return check.Prefixed(section, c.View.Unread(name))
	}
	return ""
}

// unreadOfProducer is unreadReason for a key of the section producer.
func (c *Config) unreadOfProducer(name string) string {
	switch {
	case name == "evaluations" && (c.Eval.At != EvalAtProducers || c.Eval.Every == 0):
		return "no version is scored at the producers (eval.at, eval.every)"
	case name == "values.samples" && !c.Trainer.StateValues():
		return "trainer.advantage.name is " + c.Trainer.Advantage.Name + ", which reads no values of states"
	case strings.HasPrefix(name, "journal.") && name != "journal.mode" && c.Producer.Journal.Mode == producers.JournalOff:
		return "producer.journal.mode is " + producers.JournalOff
	}
	return ""
}

// unreadReason returns the reason why nothing depends on a key of the section.
func (m Model) unreadReason(name string) string {
	if key, of := strings.CutPrefix(name, "lora."); of {
		return check.Prefixed("model.lora", m.LoRA.Unread(key))
	}
	if name != "engine" && name != "folder" && m.Folder != "" {
		return "model.folder says what the model is"
	}
	return ""
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (e Eval) Unread(key string) string {
	if e.Every == 0 && (key == "questions" || key == "at" || key == "show") {
		return "every is 0: no version is scored"
	}
	return ""
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (t *Tool) Unread(key string) string {
	switch {
	case key == "cut.keep" && t.Cut.Tokens == 0:
		return "cut.max_tokens is 0"
	case key == "latency.p99" && t.Latency.Median == 0:
		return "latency.median is 0"
	case key == "latency.slow" && t.Latency.SlowShare == 0:
		return "latency.slow_share is 0"
	}
	if why := t.Guard.Unread(key); why != "" {
		return why
	}
	return askUnread(t.Own, key)
}

// askUnread calls Unread of the keys of a type.
func askUnread(own any, key string) string {
	if r, ok := own.(unreadReporter); ok {
		return r.Unread(key)
	}
	return ""
}

// unreadOfService is unreadReason for a key below services.
func (c *Config) unreadOfService(key string) string {
	name, _, _ := strings.Cut(key, ".")
	named := false
	c.walkServices(func(_ string, r *remote.Reference) { named = named || r.URL == name })
	if !named {
		return "no url is " + name
	}
	return ""
}

// unreadOfTask is unreadReason for a key below tasks.
func (c *Config) unreadOfTask(key string) string {
	name, rest, _ := strings.Cut(key, ".")
	task := c.Tasks[name]
	if task.Weight == 0 {
		return "tasks." + name + ".weight is 0"
	}
	if key, of := strings.CutPrefix(rest, "reward."); of {
		return check.Prefixed("tasks."+name+".reward", askUnread(task.Reward.Own, key))
	}
	return check.Prefixed("tasks."+name, askUnread(task.Own, rest))
}

// unreadReporter is implemented by keys of a type of which some may have no effect.
type unreadReporter interface {
	// Unread returns the reason why nothing depends on a key, beginning with the other key that causes it; "" if something does.
	Unread(key string) string
}

// noProcessReward reports whether every tool of the run is of a type that is known to give no process reward.
func (c *Config) noProcessReward() bool {
	return !slices.ContainsFunc(c.Active(), func(task string) bool {
		named := c.Tasks[task].Tools
		return len(named) == 0 || slices.ContainsFunc(named, func(name string) bool {
			tool := c.Tools[name]
			if tool == nil {
				return true
			}
			_, gives := tool.Own.(tools.Unrewarded)
			return !gives
		})
	})
}
