package streams

import (
	"slices"
	"sync"
	"time"
)

// book keeps account of the messages of a feed by their first sequence: which are in flight, that is returned and not acked, and
// which are finished.
//
// Invariant: a sequence is returned at most once in the life of a book.
type book struct {
	mu sync.Mutex
	// floor is the sequence up to which everything is finished.
	floor    uint64
	finished map[uint64]int      // the number of parts of each
	inFlight map[uint64][]string // the reply subjects of its parts; "" where the broker did not send one
	partial  map[uint64]*partial
	// touched is when the broker last sent a part of a message in flight or partial, or was told that it is worked on.
	touched map[uint64]time.Time
	// last is the message of the highest sequence that ever came.
	last Mark
}

// partial is a message of which not all parts have come.
type partial struct {
	part    part
	subject string
	data    [][]byte // by index - 1; nil where the part has not come
	replies []string
}

// verdict is the state of a message that came.
type verdict int

const (
	isNew      verdict = iota // it came for the first time
	isReturned                // it is in flight: nothing is to be done
	isFinished                // it is finished and its ack was lost: ack it again
	isForged                  // it claims to be a part of a message that has no such part
)

func newBook(floor uint64) book {
	return book{
		floor:    floor,
		finished: make(map[uint64]int),
		inFlight: make(map[uint64][]string),
		partial:  make(map[uint64]*partial),
		touched:  make(map[uint64]time.Time),
	}
}

// noteMessage notes a message that came.
func (b *book) noteMessage(m Mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Sequence > b.last.Sequence {
		b.last = m
	}
}

// lastKnown is the message of the highest sequence that ever came.
func (b *book) lastKnown() Mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// classifyMessage is the state of a message, by its first sequence. Of a message in flight it keeps the new reply subject of the part at
// index, counted from 1.
func (b *book) classifyMessage(first uint64, index int, reply string) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	if parts, ok := b.finished[first]; ok && index > parts {
		return isForged
	} else if ok || first <= b.floor {
		return isFinished
	}
	if replies, ok := b.inFlight[first]; ok {
		if index > len(replies) {
			return isForged
		}
		replies[index-1] = reply
		b.noteSign(first)
		return isReturned
	}
	return isNew
}

// tornPartials returns the first sequences of the partial messages that can never be whole: they need a part at sequence, where a part of
// the message at first came.
func (b *book) tornPartials(sequence, first uint64) (torn []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s, p := range b.partial {
		if s != first && s < sequence && sequence < s+uint64(p.part.count) {
			torn = append(torn, s)
		}
	}
	return torn
}

// isDoneUpTo is whether everything up to sequence is finished.
func (b *book) isDoneUpTo(sequence uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return sequence <= b.floor
}

// isSingle is whether the message at a sequence is known to be finished and to have had a single part.
func (b *book) isSingle(sequence uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.finished[sequence] == 1
}

// addInFlight notes a message as returned, with the reply subjects of its parts.
func (b *book) addInFlight(first uint64, replies ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.partial, first)
	b.inFlight[first] = replies
	b.noteSign(first)
}

// collectPart keeps a part. It returns the message when all its parts are there, and else the indices of the missing parts; mismatch is
// true where the part contradicts the parts that came before.
func (b *book) collectPart(p part, first uint64, subject string, data []byte, reply string) (whole *partial, missing []int, mismatch bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.partial[first]
	if have == nil {
		have = &partial{part: p, subject: subject, data: make([][]byte, p.count), replies: make([]string, p.count)}
		b.partial[first] = have
	}
	if have.part.hash != p.hash || have.part.count != p.count || have.part.size != p.size {
		return nil, nil, true
	}
	b.noteSign(first)
	have.data[p.index-1] = data
	if reply != "" {
		have.replies[p.index-1] = reply
	}
	for i, d := range have.data {
		if d == nil {
			missing = append(missing, i+1)
		}
	}
	if missing == nil {
		return have, nil, false
	}
	return nil, missing, false
}

// takePartial drops a partial message and returns the reply subjects of its parts, "" for a part that the broker did not send, the first
// part that came, and the message's subject.
func (b *book) takePartial(first uint64) (replies []string, data []byte, subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.partial[first]
	if have == nil {
		return nil, nil, ""
	}
	delete(b.partial, first)
	delete(b.touched, first)
	if i := slices.IndexFunc(have.data, func(d []byte) bool { return d != nil }); i >= 0 {
		data = have.data[i]
	}
	return have.replies, data, have.subject
}

// lookupReplies returns the reply subjects of the sequences that are in flight, lowest first, the highest sequence of their parts,
// and the sequences that never were in flight. Finished sequences are in neither list.
func (b *book) lookupReplies(sequences []uint64) (replies []string, highest uint64, unknown []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sequences = slices.Clone(sequences)
	slices.Sort(sequences)
	for _, s := range slices.Compact(sequences) {
		if r, ok := b.inFlight[s]; ok {
			replies, highest = append(replies, r...), s+uint64(len(r))-1
			continue
		}
		if _, ok := b.finished[s]; !ok && s > b.floor {
			unknown = append(unknown, s)
		}
	}
	return sentReplies(replies), highest, unknown
}

// sentReplies are the reply subjects of parts that the broker sent.
func sentReplies(replies []string) []string {
	return slices.DeleteFunc(slices.Clone(replies), func(s string) bool { return s == "" })
}

// finishMessages marks messages as finished. It ignores sequences that never were in flight.
func (b *book) finishMessages(sequences ...uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range sequences {
		if replies, ok := b.inFlight[s]; ok {
			delete(b.inFlight, s)
			delete(b.touched, s)
			b.finished[s] = len(replies)
		}
	}
}

// raiseFloor sets the floor to that of the broker, up to which the sequences need not be kept singly.
func (b *book) raiseFloor(floor uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.inFlight {
		if s <= floor {
			floor = s - 1
		}
	}
	for s := range b.partial {
		if s <= floor {
			floor = s - 1
		}
	}
	if floor <= b.floor {
		return
	}
	b.floor = floor
	for s := range b.finished {
		if s <= floor {
			delete(b.finished, s)
		}
	}
}

// resumeSequence is the sequence from which the broker must send again, when its own ack floor is at floor: never before the finished
// messages, never after a message in flight.
func (b *book) resumeSequence(floor uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(floor, b.floor) + 1
}

// rememberedCount counts the finished sequences that are kept singly.
func (b *book) rememberedCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.finished)
}

// lowestInFlight is the lowest sequence in flight, 0 if none is.
func (b *book) lowestInFlight() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	low := uint64(0)
	for s := range b.inFlight {
		if low == 0 || s < low {
			low = s
		}
	}
	return low
}

// pendingCount counts the parts in flight, and the parts of partial messages that came.
func (b *book) pendingCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, r := range b.inFlight {
		n += len(r)
	}
	for _, p := range b.partial {
		for _, d := range p.data {
			if d != nil {
				n++
			}
		}
	}
	return n
}

// firstPartial is the lowest first sequence of a message of which not all parts have come, 0 if there is none.
func (b *book) firstPartial() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := uint64(0)
	for s := range b.partial {
		if first == 0 || s < first {
			first = s
		}
	}
	return first
}

// noteSign keeps when a part of a message came: of several parts the first, for its time passes first. The lock is held.
func (b *book) noteSign(first uint64) {
	if _, ok := b.touched[first]; !ok {
		b.touched[first] = time.Now()
	}
}

// dueReplies are the reply subjects of the messages in flight or partial of which the broker received its last sign before a time. From
// now on they count as touched.
func (b *book) dueReplies(before time.Time) (replies []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for s, at := range b.touched {
		if at.After(before) {
			continue
		}
		b.touched[s] = now
		replies = append(replies, b.inFlight[s]...)
		if p := b.partial[s]; p != nil {
			replies = append(replies, p.replies...)
		}
	}
	return sentReplies(replies)
}

// replies are the reply subjects of all messages in flight or partial.
func (b *book) replies() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, r := range b.inFlight {
		all = append(all, r...)
	}
	for _, p := range b.partial {
		all = append(all, p.replies...)
	}
	return sentReplies(all)
}
