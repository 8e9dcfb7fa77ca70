package trainer

import "github.com/weir-rl/weir/trainer/batch"

// account says of each message that was delivered what is still to be done about it.
type account struct {
	// deliveries are the messages in flight, by sequence: Reject needs them.
	deliveries map[uint64]*Delivery
	// carried are the messages that the checkpoint holds itself, by sequence, until they have ended.
	carried map[uint64]batch.Delivery
	// settled are the sequences to ack once the checkpoint is written.
	settled []uint64
	// ended counts the messages that ended otherwise than in a batch since the last checkpoint.
	ended int
	// delivered is the highest sequence that the feed gave or passed over.
	delivered uint64
}

func newAccount() account {
	return account{deliveries: map[uint64]*Delivery{}, carried: map[uint64]batch.Delivery{}}
}

// deliver notes a message. Sequences passed over are messages that the feed refused: they fill the stream too.
func (a *account) deliver(d *Delivery) {
	a.deliveries[d.Sequence] = d
	a.ended += int(max(d.Sequence, a.delivered+1) - (a.delivered + 1))
	a.delivered = max(a.delivered, d.Sequence)
}

// end notes a verdict and returns its message, nil where that is neither in flight nor carried. A carried message is not
// in flight: the stream knows it no more, and without an Origin it is only filed.
func (a *account) end(v batch.Verdict) (d *Delivery, inFlight bool) {
	d, inFlight = a.deliveries[v.Sequence]
	delete(a.deliveries, v.Sequence)
	if carried, ok := a.carried[v.Sequence]; ok {
		d = &Delivery{Delivery: carried}
		delete(a.carried, v.Sequence)
	}
	if v.State != batch.Trained {
		a.ended++
	}
	return d, inFlight
}

// settle leaves the ack of a sequence to the next checkpoint.
func (a *account) settle(sequence uint64) { a.settled = append(a.settled, sequence) }

// carry notes that a checkpoint holds messages: those in flight are settled.
func (a *account) carry(messages []batch.Delivery) {
	for _, d := range messages {
		a.carried[d.Sequence] = d
		if _, inFlight := a.deliveries[d.Sequence]; inFlight {
			delete(a.deliveries, d.Sequence)
			a.settle(d.Sequence)
		}
	}
}
