package config

import "strings"

// replacementOf returns the replacement of a key of an earlier version, "" for any other key.
func (c *Config) replacementOf(key string) string {
	if now := c.movedServiceKey(key); now != "" {
		return now
	}
	task := c.registry.Default
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
