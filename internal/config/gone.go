package config

import "strings"

// gone says what took the place of a key that was a key before, "" for any other.
func (c *Config) gone(key string) string {
	task := c.doors.Default
	for _, move := range []struct{ from, to string }{
		{"task.name", "tasks.NAME, a section named as the task is, such as tasks." + task + ".weight"},
		{"task.library.", "tasks.library."},
		{"task.countries.", "tasks.countries."},
		{"task.search.", "tools.search."},
		{"task.latency.", "tools.search.latency."},
		{"task.tool_timeout", "tools.search.timeout"},
		{"task.reward.", "tasks." + task + ".reward."},
		{"task.", "tasks.corpus."},
		{"agent.", "agents.search."},
		{"native.lora.", "model.lora."},
	} {
		if rest, ok := strings.CutPrefix(key, move.from); ok {
			if strings.HasSuffix(move.from, ".") {
				return move.to + rest
			}
			return move.to
		}
	}
	return ""
}

// renewed are the values of a file that an older build has left in a run's folder, under the keys of today: the adapters of the
// engine in Go become the model's, and the sections task and agent become the sections of the run's task, its tool and its agent. The keys of other tasks are left out.
func renewed(values map[string]any) map[string]any {
	for key, v := range values {
		if rest, ok := strings.CutPrefix(key, "native.lora."); ok {
			delete(values, key)
			values["model.lora."+rest] = v
		}
	}
	name, old := values["task.name"].(string)
	if !old {
		return values
	}
	task, out := "tasks."+name+".", map[string]any{}
	moves := []struct{ from, to string }{
		{"task." + name + ".", task},
		{"task.search.", "tools.search."},
		{"task.latency.", "tools.search.latency."},
		{"task.tool_timeout", "tools.search.timeout"},
		{"task.reward.", task + "reward."},
		{"agent.", "agents.search."},
	}
	out[task+"type"] = name
	if name == "search" { // the tool had the section of its name
		moves = moves[1:]
		out[task+"type"] = "corpus"
		for _, file := range []string{"corpus", "questions", "demonstrations", "tokenizer"} {
			moves = append(moves, struct{ from, to string }{"task." + file, task + file})
		}
	}
	for key, v := range values {
		to := key
		if strings.HasPrefix(key, "task.") || strings.HasPrefix(key, "agent.") {
			to = ""
		}
		for _, move := range moves {
			if rest, ok := strings.CutPrefix(key, move.from); ok && to == "" {
				to = move.to + rest
			}
		}
		if to != "" {
			out[to] = v
		}
	}
	return out
}
