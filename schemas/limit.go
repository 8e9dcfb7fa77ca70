package schemas

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limit is a limit of [Limits] that an operator has set.
type Limit struct {
	// Task is whose episodes it bounds; "" is every task for which the same key is not listed by name.
	Task string `msgpack:"task,omitempty"`
	// Key names the field of [Limits] by its key on the wire.
	Key string `msgpack:"key"`
	// Value is a number of calls, tokens or segments, or nanoseconds for the timeout.
	Value int64 `msgpack:"value"`
}

// The keys of limits.
const (
	LimitMaxTurns       = "max_turns"
	LimitMaxTokens      = "max_tokens"
	LimitTimeout        = "timeout"
	LimitMaxTotalTokens = "max_total_tokens"
	LimitMaxSegments    = "max_segments"
)

// Set sets the limit of a key; false where no limit has this key.
func (l *Limits) Set(key string, value int64) bool {
	switch key {
	case LimitMaxTurns:
		l.MaxTurns = int(value)
	case LimitMaxTokens:
		l.MaxTokens = int(value)
	case LimitTimeout:
		l.Timeout = time.Duration(value)
	case LimitMaxTotalTokens:
		l.MaxTotalTokens = int(value)
	case LimitMaxSegments:
		l.MaxSegments = int(value)
	default:
		return false
	}
	return true
}

// Compare orders limits by task, then by key.
func (l Limit) Compare(other Limit) int {
	return cmp.Or(strings.Compare(l.Task, other.Task), strings.Compare(l.Key, other.Key))
}

// Name is the limit's place: its key, after its task where it has a task.
func (l Limit) Name() string {
	if l.Task == "" {
		return l.Key
	}
	return l.Task + "." + l.Key
}

// Text is the limit's value as the configuration writes it.
func (l Limit) Text() string {
	if l.Key == LimitTimeout {
		return time.Duration(l.Value).String()
	}
	return strconv.FormatInt(l.Value, 10)
}

// LimitChange is a limit that holds otherwise than before, as people read it.
type LimitChange struct {
	// Name is that of [Limit.Name], Before and After are values as the configuration writes them, or "configured".
	Name, Before, After string
}

// LimitChanges are the differences between two lists of limits, by name.
func LimitChanges(before, after []Limit) (out []LimitChange) {
	values := func(in []Limit) map[string]string {
		by := map[string]string{}
		for _, l := range in {
			by[l.Name()] = l.Text()
		}
		return by
	}
	was, now := values(before), values(after)
	var names []string
	for _, l := range slices.Concat(before, after) {
		names = append(names, l.Name())
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if was[name] != now[name] {
			out = append(out, LimitChange{name, cmp.Or(was[name], "configured"), cmp.Or(now[name], "configured")})
		}
	}
	return out
}
