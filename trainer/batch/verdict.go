package batch

import "github.com/weir-rl/weir/schemas"

// State is where a delivered message stands. A message leaves Pending once, for another state.
type State int

// The states. Trained is also the state of a baseline, and of a sample passed over: their step used them up. Settled is the state of a
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

// groupCursor returns the cursor of the group that a message names; 0 where the group's id is not of GroupID's form.
func groupCursor(d schemas.Delivery) uint64 {
	if d.Trajectory != nil {
		return d.Trajectory.Cursor
	}
	cursor, _, _ := ParseGroupID(d.Closed.Group)
	return cursor
}

// Verdict is the end of a message.
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
	// Reissue asks for the same prompt again; else another prompt takes its place.
	Reissue bool
	// Accepted is true when the group had been counted as ready.
	Accepted bool
}

// Effects are the consequences of an event, in order.
type Effects struct {
	// Verdicts other than Pending.
	Verdicts []Verdict
	// Ready groups became so.
	Ready []Group
	Drops []Drop
	// Lost are the ids of samples that were given up.
	Lost []string
}

func (e *Effects) addSettled(seq uint64) {
	e.Verdicts = append(e.Verdicts, Verdict{Sequence: seq, State: Settled})
}

func (e *Effects) addRejected(seq uint64, id string, reason schemas.Reason, detail string) {
	e.Verdicts = append(e.Verdicts, Verdict{Sequence: seq, ID: id, State: Rejected, Reason: reason, Detail: detail})
}
