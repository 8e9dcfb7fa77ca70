package schemas

// Reason says why a message was refused, or a trajectory was not trained on. It is part of a subject: letters, digits, '_'
// and '-' only.
type Reason string

// The reasons for which a message is refused and filed with the rejected ones.
const (
	ReasonStale     Reason = "stale"     // its oldest token is more than eta versions behind
	ReasonMalformed Reason = "malformed" // it cannot be read, or contradicts itself
	ReasonVersion   Reason = "version"   // its wire version is not this build's
	ReasonForeign   Reason = "foreign"   // it is another run's, kind's or producer's, or of a group that was never issued
	ReasonOversized Reason = "oversized" // it is larger than a reader is ready to hold
	ReasonDuplicate Reason = "duplicate" // its trajectory or its sample was received before, or its group has ended
	ReasonPoisoned  Reason = "poisoned"  // a trajectory cannot be trained on; every attempt at a ticket failed
)

// The reasons for which a trajectory in order, or its whole group, is not trained on.
const (
	ReasonIncomplete   Reason = "incomplete"    // too few samples of the group can be used, or not its baseline
	ReasonZeroVariance Reason = "zero_variance" // the group is not worth training on: as a rule, all its rewards are equal
	ReasonLost         Reason = "lost"          // the trajectory never came, or went with a stream that was made anew
	ReasonGivenUp      Reason = "given_up"      // the prompt was issued max_attempts times and never came to a usable group
	ReasonUnknownTask  Reason = "unknown_task"  // a checkpoint left the group open, and the run no longer has its task
)

// Reasons are all for which a trajectory is refused or not trained on: reasons of groups alone are not among them.
func Reasons() []Reason {
	return []Reason{
		ReasonDuplicate, ReasonForeign, ReasonIncomplete, ReasonLost, ReasonMalformed, ReasonOversized, ReasonPoisoned,
		ReasonStale, ReasonVersion, ReasonZeroVariance,
	}
}

// Refusal says whether the message is filed with the rejected ones, for people to look at.
func (r Reason) Refusal() bool {
	return r != ReasonIncomplete && r != ReasonZeroVariance && r != ReasonLost
}
