package trainer

import (
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
)

// account says of each message that was delivered what is still to be done about it.
type account struct {
	// deliveries are the messages in flight, by sequence: Reject needs them.
	deliveries map[uint64]*streams.Delivery
	// carried are the messages that the checkpoint holds itself, by sequence, until they have ended.
	carried map[uint64]schemas.Delivery
	// times are when trajectories were issued and came, by sequence, until they have ended.
	times map[uint64]archive.Times
	// settled are the sequences to ack once the checkpoint is written.
	settled []uint64
	// ended counts the messages that ended otherwise than in a batch since the last checkpoint.
	ended int
	// delivered is the highest sequence that the feed gave or passed over.
	delivered uint64
}

func newAccount() account {
	return account{deliveries: map[uint64]*streams.Delivery{}, carried: map[uint64]schemas.Delivery{}, times: map[uint64]archive.Times{}}
}

// deliver notes a message. Sequences passed over are messages that the feed refused: they fill the stream too.
func (a *account) deliver(d *streams.Delivery) {
	a.deliveries[d.Sequence] = d
	a.ended += int(max(d.Sequence, a.delivered+1) - (a.delivered + 1))
	a.delivered = max(a.delivered, d.Sequence)
}

// message is one that has ended: in flight, or carried by the checkpoint, in which case the stream knows it no more.
type message struct {
	schemas.Delivery
	// inFlight is nil of a carried message.
	inFlight *streams.Delivery
}

// end notes a verdict and returns its message; ok is false where the message is neither in flight nor carried, as after a
// redelivery.
func (a *account) end(v batch.Verdict) (m message, ok bool) {
	if d := a.deliveries[v.Sequence]; d != nil {
		m, ok = message{d.Delivery, d}, true
		delete(a.deliveries, v.Sequence)
	}
	if d, carried := a.carried[v.Sequence]; carried {
		m.Delivery, ok = d, true
		delete(a.carried, v.Sequence)
	}
	delete(a.times, v.Sequence)
	if v.State != batch.Trained {
		a.ended++
	}
	return m, ok
}

// timesOf are when a trajectory that has not ended was issued and came; zero where that is not known, as after a restart.
func (a *account) timesOf(sequence uint64) archive.Times { return a.times[sequence] }

// settle leaves the ack of a sequence to the next checkpoint.
func (a *account) settle(sequence uint64) { a.settled = append(a.settled, sequence) }

// carry notes that a checkpoint holds messages: those in flight are settled.
func (a *account) carry(messages []schemas.Delivery) {
	for _, d := range messages {
		a.carried[d.Sequence] = d
		if _, inFlight := a.deliveries[d.Sequence]; inFlight {
			delete(a.deliveries, d.Sequence)
			a.settle(d.Sequence)
		}
	}
}
