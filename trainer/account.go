package trainer

import (
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
)

// messageLedger has the state of each delivered message until nothing is left to do for it.
type messageLedger struct {
	// deliveries are the messages in flight, by sequence: Reject needs them.
	deliveries map[uint64]*streams.Delivery
	// carried are the messages that the checkpoint holds itself, by sequence, until they have ended.
	carried map[uint64]schemas.Delivery
	// origins are what is known of trajectories beside their content, by sequence, until they have ended.
	origins map[uint64]archive.Origin
	// settled are the sequences to ack once the checkpoint is written.
	settled []uint64
	// ended counts the messages that ended otherwise than in a batch since the last checkpoint.
	ended int
	// delivered is the highest sequence that the feed gave or passed over.
	delivered uint64
}

func newAccount() messageLedger {
	return messageLedger{deliveries: map[uint64]*streams.Delivery{}, carried: map[uint64]schemas.Delivery{}, origins: map[uint64]archive.Origin{}}
}

// recordDelivery notes a message as in flight. A gap in the sequences counts as messages that the feed refused, which fill the stream too.
func (a *messageLedger) recordDelivery(d *streams.Delivery) {
	a.deliveries[d.Sequence] = d
	a.ended += int(max(d.Sequence, a.delivered+1) - (a.delivered + 1))
	a.delivered = max(a.delivered, d.Sequence)
}

// endedMessage is a message that has ended: in flight, or carried by the checkpoint, in which case the stream no longer tracks it.
type endedMessage struct {
	schemas.Delivery
	// inFlight is nil of a carried message.
	inFlight *streams.Delivery
}

// endMessage notes a verdict and returns its message; ok is false where the message is neither in flight nor carried, as after a
// redelivery.
func (a *messageLedger) endMessage(v batch.Verdict) (m endedMessage, ok bool) {
	if d := a.deliveries[v.Sequence]; d != nil {
		m, ok = endedMessage{d.Delivery, d}, true
		delete(a.deliveries, v.Sequence)
	}
	if d, carried := a.carried[v.Sequence]; carried {
		m.Delivery, ok = d, true
		delete(a.carried, v.Sequence)
	}
	delete(a.origins, v.Sequence)
	if v.State != batch.Trained {
		a.ended++
	}
	return m, ok
}

// lookUpOrigin returns what is known of a trajectory that has not ended; its fields are zero where they are not known, as after a restart.
func (a *messageLedger) lookUpOrigin(sequence uint64) archive.Origin { return a.origins[sequence] }

// ackLater leaves the ack of a sequence to the next checkpoint.
func (a *messageLedger) ackLater(sequence uint64) { a.settled = append(a.settled, sequence) }

// recordCarried notes that a checkpoint holds messages, so that messages in flight among them can be acked.
func (a *messageLedger) recordCarried(messages []schemas.Delivery) {
	for _, d := range messages {
		a.carried[d.Sequence] = d
		if _, inFlight := a.deliveries[d.Sequence]; inFlight {
			delete(a.deliveries, d.Sequence)
			a.ackLater(d.Sequence)
		}
	}
}
