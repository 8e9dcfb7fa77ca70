package operate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// Limits are the limits of a task's episodes that are to change. What is nil stays.
type Limits struct {
	// Task is whose episodes they bound; "" is every task, in the place of what was set for one.
	Task string `json:"task,omitempty"`
	// Configured first takes back all that was set: of the task, or of every task where none is named.
	Configured bool `json:"configured,omitempty"`
	// MaxTurns bounds the tool calls, MaxTokens the tokens of a segment (1 at least), MaxTotalTokens those of all segments and MaxSegments
	// the segments; 0 is no bound of the last two.
	MaxTurns       *int64 `json:"max_turns,omitempty"`
	MaxTokens      *int64 `json:"max_tokens,omitempty"`
	MaxTotalTokens *int64 `json:"max_total_tokens,omitempty"`
	MaxSegments    *int64 `json:"max_segments,omitempty"`
	// Timeout bounds the wall-clock, as the configuration writes it: "90s"; 0 is no bound.
	Timeout *string `json:"timeout,omitempty"`
}

// limitKeys are the keys that can be set, as messages name them.
const limitKeys = schemas.LimitMaxTurns + ", " + schemas.LimitMaxTokens + ", " + schemas.LimitTimeout + ", " + schemas.LimitMaxTotalTokens + ", " +
	schemas.LimitMaxSegments

// ParseLimits reads words such as max_turns=6 and configured. Every fault is reported.
func ParseLimits(task string, words []string) (*Limits, error) {
	l := &Limits{Task: task}
	numbers := map[string]**int64{
		schemas.LimitMaxTurns: &l.MaxTurns, schemas.LimitMaxTokens: &l.MaxTokens,
		schemas.LimitMaxTotalTokens: &l.MaxTotalTokens, schemas.LimitMaxSegments: &l.MaxSegments,
	}
	var faults []error
	seen := map[string]bool{}
	for _, word := range words {
		key, value, found := strings.Cut(word, "=")
		at := numbers[key]
		switch {
		case word == "configured":
			l.Configured = true
		case !found || at == nil && key != schemas.LimitTimeout:
			faults = append(faults, fmt.Errorf("limits %q: want KEY=VALUE with a key of %s, or the word configured", word, limitKeys))
		case seen[key]:
			faults = append(faults, fmt.Errorf("limits %q: the key is named twice", word))
		case at == nil:
			l.Timeout = &value
		default:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				faults = append(faults, fmt.Errorf("limits %q: want a whole number", word))
			}
			*at = &n
		}
		seen[key] = true
	}
	if len(words) == 0 {
		faults = append(faults, fmt.Errorf("limits: want KEY=VALUE, such as max_turns=6 or timeout=90s, with a key of %s; or the word configured", limitKeys))
	}
	return l, check.All(faults...)
}

// mostLimit bounds a number, so that every role's own integers hold it.
const mostLimit = 1 << 31

// validateValues reports every fault.
func (l *Limits) validateValues() error {
	set, faults := l.changedLimits()
	for _, one := range set {
		least := int64(0)
		if one.Key == schemas.LimitMaxTokens {
			least = 1
		}
		if one.Key == schemas.LimitTimeout {
			faults = append(faults, check.That(one.Value >= 0, one.Key, "%s: must not be negative", one.Text()))
			continue
		}
		faults = append(faults, check.Between(one.Key, one.Value, least, mostLimit))
	}
	return check.All(faults...)
}

// isEmpty is whether nothing is to change.
func (l *Limits) isEmpty() bool { return *l == Limits{Task: l.Task} }

// changedLimits are the limits that are to change, sorted by key.
func (l *Limits) changedLimits() (out []schemas.Limit, faults []error) {
	for key, value := range map[string]*int64{
		schemas.LimitMaxTurns: l.MaxTurns, schemas.LimitMaxTokens: l.MaxTokens,
		schemas.LimitMaxTotalTokens: l.MaxTotalTokens, schemas.LimitMaxSegments: l.MaxSegments,
	} {
		if value != nil {
			out = append(out, schemas.Limit{Task: l.Task, Key: key, Value: *value})
		}
	}
	if l.Timeout != nil {
		d, err := time.ParseDuration(*l.Timeout)
		if err != nil {
			faults = append(faults, fmt.Errorf("timeout: %q: want a duration, such as 90s or 2m", *l.Timeout))
		} else {
			out = append(out, schemas.Limit{Task: l.Task, Key: schemas.LimitTimeout, Value: int64(d)})
		}
	}
	slices.SortFunc(out, schemas.Limit.Compare)
	return out, faults
}

// applyLimits changes a control's limits.
func (l *Limits) applyLimits(c *schemas.Control, done *Done) {
	set, _ := l.changedLimits()
	was := c.Limits
	next := slices.DeleteFunc(slices.Clone(was), func(one schemas.Limit) bool {
		every := l.Task == ""
		return (every || one.Task == l.Task) && (l.Configured || slices.ContainsFunc(set, func(s schemas.Limit) bool { return s.Key == one.Key }))
	})
	next = append(next, set...)
	slices.SortFunc(next, schemas.Limit.Compare)
	for _, change := range schemas.LimitChanges(was, next) {
		done.Changes = append(done.Changes, fmt.Sprintf("limits.%s: %s, before %s", change.Name, change.After, change.Before))
	}
	if c.Limits = next; len(next) == 0 {
		c.Limits = nil
	}
}

// Known has the settings of a run that acts are checked against: an act that the trainer would refuse is refused at once. The trainer holds
// every act against the run itself, whatever is known elsewhere.
type Known struct {
	// Tasks are the run's.
	Tasks []string `json:"tasks"`
	// MaxTokens is how long a sequence of the policy can be, and MaxSegments trainer.limits.max_segments; 0 is not known, or no bound.
	MaxTokens   int64 `json:"max_tokens,omitempty"`
	MaxSegments int64 `json:"max_segments,omitempty"`
}

// Check reports every fault of an act in a run of which so much is known; nil knows nothing.
func (k *Known) Check(a Act) error {
	if k == nil || a.Limits == nil {
		return nil
	}
	l := a.Limits
	var faults []error
	if l.Task != "" && !slices.Contains(k.Tasks, l.Task) {
		faults = append(faults, fmt.Errorf("limits.task: %q: the run has the tasks %s", l.Task, strings.Join(k.Tasks, ", ")))
	}
	if l.MaxTokens != nil && k.MaxTokens > 0 && *l.MaxTokens > k.MaxTokens {
		faults = append(faults, fmt.Errorf("limits.max_tokens: %d: must not exceed the longest sequence of the policy, %d", *l.MaxTokens, k.MaxTokens))
	}
	if l.MaxSegments != nil && k.MaxSegments > 0 && *l.MaxSegments > k.MaxSegments {
		faults = append(faults, fmt.Errorf("limits.max_segments: %d: must not exceed trainer.limits.max_segments, %d: what has more is refused", *l.MaxSegments, k.MaxSegments))
	}
	return errors.Join(faults...)
}
