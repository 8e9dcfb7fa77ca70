package trainer

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
)

// TurnSchedule is the most tool calls of an episode as training goes on: for each policy version that it names, the limit from there until
// the next named version (ScalingInter-RL of AgentGym-RL, arXiv 2509.08755: a policy that may act for long before it acts well learns to
// wander). nil leaves Limits.MaxTurns as it is.
//
// The version is that of the ticket, which is set when the ticket is issued: an episode's limit is a function of its ticket, whatever
// version samples it.
type TurnSchedule map[int64]int

// Validate reports every fault: a schedule begins at version 0 and never shrinks.
func (s TurnSchedule) Validate() error {
	if len(s) == 0 {
		return nil
	}
	_, begins := s[0]
	faults := []error{check.That(begins, "0", "missing: say what holds from step 0")}
	before := 1
	for _, from := range slices.Sorted(maps.Keys(s)) {
		key := fmt.Sprint(from)
		faults = append(faults,
			check.That(from >= 0, key, "%d: a step must not be negative", from),
			check.That(s[from] >= before, key, "%d: must be at least %d: the limit grows with the steps", s[from], before))
		before = max(before, s[from])
	}
	return errors.Join(faults...)
}

// At is the limit of a ticket that is issued at a version; otherwise where the schedule is nil.
func (s TurnSchedule) At(version int64, otherwise int) int {
	newest := int64(-1)
	for from := range s {
		if from <= version && from > newest {
			newest = from
		}
	}
	if newest < 0 {
		return otherwise
	}
	return s[newest]
}

// Last is the schedule's last limit, which evaluations use; otherwise where the schedule is nil.
func (s TurnSchedule) Last(otherwise int) int {
	if len(s) == 0 {
		return otherwise
	}
	return s[slices.Max(slices.Collect(maps.Keys(s)))]
}

// boundRollouts returns the limits of a prompt's tickets that are issued at a version.
func (p Prompt) boundRollouts(version int64, otherwise schemas.Limits) schemas.Limits {
	limits := p.Limits
	if limits == (schemas.Limits{}) {
		limits = otherwise
	}
	limits.MaxTurns = p.Turns.At(version, limits.MaxTurns)
	return limits
}
