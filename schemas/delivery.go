package schemas

// Delivery is a message of the trajectory stream as a reader gets it: a trajectory or a group-closed marker, the other being nil.
type Delivery struct {
	// Sequence in the stream; of the first part where the message goes in parts.
	Sequence   uint64
	Trajectory *Trajectory
	Closed     *GroupClosed
}
