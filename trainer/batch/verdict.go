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

// cursorOf is that of the group that a message names; 0 where the group's id is not of GroupID's form.
func cursorOf(d schemas.Delivery) uint64 {
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
	Reason schemas.Reason
	Detail string
}

// Drop is the end of a group that is not trained on.
type Drop struct {
	Group  Group
	Reason schemas.Reason
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

func (e *Effects) reject(seq uint64, id string, reason schemas.Reason, detail string) {
	e.Verdicts = append(e.Verdicts, Verdict{Sequence: seq, ID: id, State: Rejected, Reason: reason, Detail: detail})
}
