package batch

import "github.com/weir-rl/weir/schemas"

// State is where a delivered message stands. A message leaves Pending once, for one of the other two.
type State int

// The states. Trained is that of a baseline too, and of a sample passed over: its step used it up. Settled is that of a
// message that has ended before: a redelivery, to be acked again.
const (
	Pending State = iota
	Trained
	Rejected
	Settled
)

// String is the state's word.
func (s State) String() string {
	return [...]string{"pending", "trained", "rejected", "settled"}[s]
}

// Reason says why a trajectory was not trained on.
type Reason string

// The reasons. The first four mean that the message itself was refused; the next two that it was in order
// but its group could not be used; the last that there is none.
const (
	ReasonStale        Reason = "stale"         // its oldest token is more than eta versions behind
	ReasonDuplicate    Reason = "duplicate"     // its sample was delivered before, or its group has ended
	ReasonForeign      Reason = "foreign"       // another run's, or of a group that was never issued
	ReasonPoisoned     Reason = "poisoned"      // its content cannot be trained on
	ReasonIncomplete   Reason = "incomplete"    // too few samples of its group can be used, or not its baseline
	ReasonZeroVariance Reason = "zero_variance" // its group is not worth training on: as a rule, all its rewards are equal
	ReasonLost         Reason = "lost"          // it never came, and nothing is left that it could come from
)

// Refusal says whether the message belongs with the rejected ones, for people to look at.
func (r Reason) Refusal() bool {
	return r != ReasonIncomplete && r != ReasonZeroVariance && r != ReasonLost
}

// Delivery is one message of the stream: a trajectory or a group-closed marker, the other being nil.
type Delivery struct {
	Sequence   uint64
	Trajectory *schemas.Trajectory
	Closed     *schemas.GroupClosed
}

// cursor is that of the group that it names; 0 where that is none that GroupID writes.
func (d Delivery) cursor() uint64 {
	if d.Trajectory != nil {
		return d.Trajectory.Cursor
	}
	cursor, _, _ := ParseGroupID(d.Closed.Group)
	return cursor
}

// Verdict is what became of one message.
type Verdict struct {
	Sequence uint64
	// ID is the trajectory's, "" for a marker.
	ID    string
	State State
	// Reason and Detail are set when State is Rejected.
	Reason Reason
	Detail string
}

// Drop is the end of a group that is not trained on.
type Drop struct {
	Group  Group
	Reason Reason
	// Reissue asks for the same prompt again; else another takes its place.
	Reissue bool
	// Accepted is true when the group had been counted as ready.
	Accepted bool
}

// Effects are what one event caused, in order.
type Effects struct {
	// Verdicts other than Pending.
	Verdicts []Verdict
	// Ready groups became so.
	Ready []Group
	Drops []Drop
	// Lost are the ids of samples that were given up.
	Lost []string
}

func (e *Effects) settle(seq uint64) {
	e.Verdicts = append(e.Verdicts, Verdict{Sequence: seq, State: Settled})
}

func (e *Effects) reject(seq uint64, id string, reason Reason, detail string) {
	e.Verdicts = append(e.Verdicts, Verdict{Sequence: seq, ID: id, State: Rejected, Reason: reason, Detail: detail})
}
