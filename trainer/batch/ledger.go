package batch

import (
	"maps"
	"slices"
)

// Ledger says which messages of the stream have ended: all up to Low but those in Carried, and those in Above.
type Ledger struct {
	Low uint64 `json:"low"`
	// Above is sorted; all are greater than Low.
	Above []uint64 `json:"above,omitempty"`
	// Carried is sorted: messages that have not ended and are not read from the stream again, for the checkpoint
	// holds them itself.
	Carried []uint64 `json:"carried,omitempty"`
}

// ledger tracks messages by sequence. A message is pending from its first delivery until it has ended.
type ledger struct {
	low uint64
	// highest is the last sequence delivered since the ledger was opened: what is above it may still come, even
	// below one that has ended.
	highest uint64
	done    map[uint64]struct{}
	pending map[uint64]struct{}
	carried map[uint64]struct{}
}

func newLedger(l Ledger) *ledger {
	return &ledger{low: l.Low, highest: l.Low, done: set(l.Above), pending: map[uint64]struct{}{}, carried: set(l.Carried)}
}

func set(sequences []uint64) map[uint64]struct{} {
	out := make(map[uint64]struct{}, len(sequences))
	for _, s := range sequences {
		out[s] = struct{}{}
	}
	return out
}

func (l *ledger) ended(seq uint64) bool {
	if _, ok := l.carried[seq]; ok {
		return false
	}
	_, ok := l.done[seq]
	return ok || seq <= l.low
}

// begin notes a delivery; false when it is pending already.
func (l *ledger) begin(seq uint64) bool {
	l.highest = max(l.highest, seq)
	if _, ok := l.pending[seq]; ok {
		return false
	}
	l.pending[seq] = struct{}{}
	return true
}

func (l *ledger) end(seq uint64) {
	delete(l.pending, seq)
	delete(l.carried, seq)
	if seq > l.low {
		l.done[seq] = struct{}{}
	}
}

// carry makes everything that is pending carried.
func (l *ledger) carry() {
	for seq := range l.pending {
		l.carried[seq] = struct{}{}
	}
}

// compact moves the low-water mark as high as nothing pending forbids. Sequences never seen below the highest
// delivered one are gaps: messages that the feed itself refused.
func (l *ledger) compact() Ledger {
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
