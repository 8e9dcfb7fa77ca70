package assembly

import (
	"fmt"
	"log/slog"

	"github.com/weir-rl/weir/internal/config"
)

// UnreadLines are settings that nothing in the run reads, each as a line for people.
func UnreadLines(cfg *config.Config, origins map[string]string) []string {
	var lines []string
	values := config.Values(cfg)
	for _, e := range cfg.Unread(origins) {
		lines = append(lines, fmt.Sprintf("%s = %s (from %s) has no effect: %s", e.Key, config.Shown(values[e.Key]), e.Origin, e.Problem))
	}
	return lines
}

// warnUnread logs the settings that nothing in the run reads.
func warnUnread(log *slog.Logger, cfg *config.Config, origins map[string]string) {
	values := config.Values(cfg)
	for _, e := range cfg.Unread(origins) {
		log.Warn("a setting has no effect", "key", e.Key, "value", config.Shown(values[e.Key]), "from", e.Origin, "because", e.Problem)
	}
}
