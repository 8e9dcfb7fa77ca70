package runfolder

import (
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// key names a group: the prompt's position in the order of issue, and how often it had been issued before.
type key struct {
	cursor  uint64
	attempt int32
}

func (k key) groupID() string { return batch.GroupID(k.cursor, int(k.attempt)) }

// row is a trajectory of the record of steps.
type row struct {
	key
	sample int32
	fate   Fate
	reason uint8 // of reasons
	reward float32
	// oldest and newest are the policy versions of its tokens; -1 where the record does not say.
	oldest, newest int32
	// step used it up, or is the step whose record notes its end.
	step     int32
	sequence uint64
	// again is set where a step before had used the trajectory too (trainer.reuse).
	again bool
	// odd is the id of a message whose id is not a ticket's, as an index of oddities, from 1 on.
	odd int32
}

// group is a group that has ended or is open.
type group struct {
	key
	step   int32
	size   int32 // 0 where the record does not say
	fate   Fate  // trained, dropped or underway
	reason uint8
	again  bool // its prompt is issued again
	// source is the source of its prompt; "" where the record has none.
	source string
}

// reasons are the reasons by their index in a row; the first is none.
var reasons = append([]schemas.Reason{""}, append(schemas.Reasons(), schemas.ReasonGivenUp, schemas.ReasonUnknownTask)...)

var reasonIndex = func() map[schemas.Reason]uint8 {
	out := map[schemas.Reason]uint8{}
	for i, r := range reasons {
		out[r] = uint8(i)
	}
	return out
}()

// reasonOf returns a reason's index; reasonName tells a reason that this build does not know from no reason.
func reasonOf(r schemas.Reason) uint8 {
	if i, known := reasonIndex[r]; known {
		return i
	}
	return uint8(len(reasons))
}

func reasonName(i uint8) string {
	if int(i) >= len(reasons) {
		return otherReason
	}
	return string(reasons[i])
}

// parseGroupID parses the id of a group.
func parseGroupID(id string) (key, bool) {
	cursor, attempt, ok := batch.ParseGroupID(id)
	return key{cursor, int32(attempt)}, ok
}

// sampleKey names a ticket.
type sampleKey struct {
	key
	sample int32
}

// sampleOf parses the id of a ticket.
func sampleOf(id string) (sampleKey, bool) {
	cursor, attempt, sample, ok := batch.ParseTicketID(id)
	return sampleKey{key{cursor, int32(attempt)}, int32(sample)}, ok
}
