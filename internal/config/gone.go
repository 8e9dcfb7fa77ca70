package config

import "strings"

// gone says what took the place of a key that was a key before, "" for any other.
func (c *Config) gone(key string) string {
	if now := c.serviceKey(key); now != "" {
		return now
	}
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
