package cli

import (
	"fmt"
	"io"

	"github.com/weir-rl/weir/internal/config"
)

// unread are settings that nothing in the run reads, each as a line for people.
func unread(cfg *config.Config, origins map[string]string) []string {
	var lines []string
	values := config.Values(cfg)
	for _, e := range cfg.Unread(origins) {
		lines = append(lines, fmt.Sprintf("%s = %s (from %s) has no effect: %s", e.Key, config.Shown(values[e.Key]), e.Origin, e.Problem))
	}
	return lines
}

// warnUnread logs the settings that nothing in the run reads.
func (s *session) warnUnread() {
	values := config.Values(s.cfg)
	for _, e := range s.cfg.Unread(s.origins) {
		s.log.Warn("a setting has no effect", "key", e.Key, "value", config.Shown(values[e.Key]), "from", e.Origin, "because", e.Problem)
	}
}

// printUnread shows them where a live view would hide the log.
func (s *session) printUnread(w io.Writer) error {
	for _, line := range unread(s.cfg, s.origins) {
		if _, err := fmt.Fprintln(w, "weir: warning:", line); err != nil {
			return err
		}
	}
	return nil
}
