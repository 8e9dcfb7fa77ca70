package batch

import (
	"maps"
	"slices"
)

// Ledger lists the messages of the stream that have ended: all up to Low without the messages in Carried, and the messages in Above.
type Ledger struct {
	Low uint64 `json:"low"`
	// Above is sorted; all are greater than Low.
	Above []uint64 `json:"above,omitempty"`
	// Carried is sorted: messages that have not ended and are not read from the stream again, because the checkpoint holds them itself.
	Carried []uint64 `json:"carried,omitempty"`
}

// ledger tracks messages by sequence. A message is pending from its first delivery until it has ended.
type ledger struct {
	low uint64
	// highest is the last sequence delivered since the ledger was opened: messages above it may still come, even below a message that has
	// ended.
	highest uint64
	done    map[uint64]struct{}
	pending map[uint64]struct{}
	carried map[uint64]struct{}
}

func newLedger(l Ledger) *ledger {
	return &ledger{low: l.Low, highest: l.Low, done: sequenceSet(l.Above), pending: map[uint64]struct{}{}, carried: sequenceSet(l.Carried)}
}

func sequenceSet(sequences []uint64) map[uint64]struct{} {
	out := make(map[uint64]struct{}, len(sequences))
	for _, s := range sequences {
		out[s] = struct{}{}
	}
	return out
}

func (l *ledger) hasEnded(seq uint64) bool {
	if _, ok := l.carried[seq]; ok {
		return false
	}
	_, ok := l.done[seq]
	return ok || seq <= l.low
}

// beginMessage notes a delivery; false when it is pending already.
func (l *ledger) beginMessage(seq uint64) bool {
	l.highest = max(l.highest, seq)
	if _, ok := l.pending[seq]; ok {
		return false
	}
	l.pending[seq] = struct{}{}
	return true
}

func (l *ledger) endMessage(seq uint64) {
	delete(l.pending, seq)
	delete(l.carried, seq)
	if seq > l.low {
		l.done[seq] = struct{}{}
	}
}

// carryPending makes everything that is pending carried.
func (l *ledger) carryPending() {
	for seq := range l.pending {
		l.carried[seq] = struct{}{}
	}
}

// compactMarks moves the low-water mark as high as the pending messages allow. Sequences never seen below the highest delivered sequence
// are gaps: messages that the feed itself refused.
func (l *ledger) compactMarks() Ledger {
	low := l.highest
	for seq := range l.pending {
		if _, carried := l.carried[seq]; !carried {
			low = min(low, seq-1)
		}
	}
	l.low = max(l.low, low)
	maps.DeleteFunc(l.done, func(seq uint64, _ struct{}) bool { return seq <= l.low })
	return Ledger{Low: l.low, Above: slices.Sorted(maps.Keys(l.done)), Carried: slices.Sorted(maps.Keys(l.carried))}
}
