package runfolder

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// Fate is the end of a ticket, and of the trajectory that came of it.
type Fate uint8

// The fates. A ticket of an open group is underway until its own trajectory is refused, or its group ends.
const (
	FateUnderway   Fate = iota
	FateTrained         // a step trained on it
	FateBaseline        // the greedy rollout that a step compared its group with
	FatePassedOver      // the selection of a step took other samples of its group
	FateDropped         // in order, and its group could not be used
	FateRefused         // itself at fault, and filed in REJECTED unless its group had ended
	FateLost            // it never came, or went with a stream that was lost
	FateClosed          // its producer closed it without a trajectory
)

var fateNames = [...]string{"underway", "trained", "baseline", "passed_over", "dropped", "refused", "lost", "closed"}

// FateNames returns the names of all fates, in the order of the constants.
func FateNames() []string { return slices.Clone(fateNames[:]) }

// String returns the fate's name, in JSON and in queries.
func (f Fate) String() string { return fateNames[f] }

// ParseFate returns the fate of a name.
func ParseFate(name string) (fate Fate, ok bool) {
	at := slices.Index(fateNames[:], name)
	return Fate(max(0, at)), at >= 0
}

// Used reports whether a step used the trajectory up.
func (f Fate) Used() bool { return f == FateTrained || f == FateBaseline || f == FatePassedOver }

// FateOf returns the fate of a trajectory that was not trained on for a reason.
func FateOf(reason schemas.Reason) Fate {
	switch {
	case reason == schemas.ReasonLost:
		return FateLost
	case reason.Refusal():
		return FateRefused
	}
	return FateDropped
}

// Verdict is the entry of the record of steps, or of REJECTED, about a trajectory.
type Verdict struct {
	ID string
	// Group is "" where the id is not a ticket's.
	Group string
	Fate  Fate
	// Step used the trajectory up, or is the step whose record notes its end; -1 where only REJECTED has it.
	Step     int64
	Sequence uint64
	// Again are the further steps that trained on it (trainer.reuse).
	Again []int64
	// Reward, Oldest and Newest are set where Fate.Used. Oldest and Newest are the versions of its oldest and newest sampled tokens.
	Reward         float64
	Oldest, Newest int64
	// Reason is set where a step did not use it; Detail is the sentence in REJECTED, "" elsewhere.
	Reason schemas.Reason
	Detail string
}

// String returns the verdict in words.
func (v Verdict) String() string {
	words := v.withoutDetail()
	if len(v.Again) > 0 {
		words += ", and again in " + strings.Trim(fmt.Sprint(v.Again), "[]")
	}
	if v.Detail != "" {
		words += ", " + v.Detail
	}
	return words
}

func (v Verdict) withoutDetail() string {
	switch {
	case v.Fate == FateTrained:
		return fmt.Sprintf("trained on in step %d", v.Step)
	case v.Fate == FateBaseline:
		return fmt.Sprintf("the greedy baseline of its group in step %d", v.Step)
	case v.Fate == FatePassedOver:
		return fmt.Sprintf("passed over for others of its group in step %d", v.Step)
	case v.Fate == FateDropped:
		return fmt.Sprintf("dropped with its group before step %d: %s", v.Step, v.Reason)
	case v.Fate == FateLost:
		return fmt.Sprintf("lost before step %d", v.Step)
	case v.Fate == FateRefused && v.Step >= 0:
		return fmt.Sprintf("refused before step %d: %s", v.Step, v.Reason)
	case v.Fate == FateRefused:
		return fmt.Sprintf("refused: %s", v.Reason)
	case v.Fate == FateClosed:
		return "closed by its producer without a trajectory"
	}
	return "underway: no step has used it, and no record has its end"
}

// otherReason stands for a reason that this build does not know.
const otherReason = "other"

// reasonTexts explains each reason.
var reasonTexts = map[schemas.Reason]string{
	schemas.ReasonStale:        "the oldest token was more than eta versions behind: raise eta, add trainers' speed or fewer producers, or lower depth",
	schemas.ReasonMalformed:    "the message could not be read, or contradicts itself",
	schemas.ReasonVersion:      "of another wire version: a producer of another build",
	schemas.ReasonForeign:      "not of this run, or not what its ticket asked for",
	schemas.ReasonOversized:    "larger than the trainer is ready to hold",
	schemas.ReasonDuplicate:    "its sample had come before, or its group had ended",
	schemas.ReasonPoisoned:     "it cannot be trained on: the rollout failed, or its numbers are out of bounds",
	schemas.ReasonIncomplete:   "too few samples of its group could be used",
	schemas.ReasonZeroVariance: "all rewards of its group are equal: nothing to learn from the comparison",
	schemas.ReasonLost:         "it never came, or went with a stream that was lost",
	otherReason:                "a reason that this build does not know",
}

// ExplainReason returns the meaning of a reason; "" where this package has no text for it.
func ExplainReason(reason schemas.Reason) string { return reasonTexts[reason] }
