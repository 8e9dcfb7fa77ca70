package trainer

import (
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxNames and maxNameBytes bound the metrics that trajectories may name, of each kind.
	maxNames     = 64
	maxNameBytes = 64
	// otherName stands for the names beyond the bounds.
	otherName = "other"
)

// names are the names of a kind that trajectories gave, such as reward components or sources. Each name becomes a metric, so their number
// is bounded: a producer that makes up names must not make metrics without end.
type names struct {
	kind  string
	known map[string]bool
	// logged is set once the log has reported a name beyond the bounds.
	logged bool
}

// boundedName returns the name, or "other" when it is too long, not printable, or beyond maxNames. The first such name is logged.
func (n *names) boundedName(name string, log *slog.Logger) string {
	if n.known[name] {
		return name
	}
	fits := len(name) <= maxNameBytes && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if fits && len(n.known) < maxNames {
		if n.known == nil {
			n.known = map[string]bool{}
		}
		n.known[name] = true
		return name
	}
	if !n.logged {
		n.logged = true
		log.Warn("trajectories name more metrics, or longer names, than are kept; the rest count together", "kind", n.kind,
			"names", maxNames, "bytes", maxNameBytes, "under", otherName, "first", strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], "?"))
	}
	return otherName
}
