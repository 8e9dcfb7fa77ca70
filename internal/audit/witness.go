package audit

import (
	"slices"
	"time"

	"github.com/weir-rl/weir/trainer/batch"
)

// Seen is a message that a witness saw stored in the trajectory stream.
type Seen struct {
	// ID is the trajectory's; "" where the witness could not read it.
	ID string
	// Sequence is the message's, First that of the first part of the message that it is a part of; 0 where it is
	// whole.
	Sequence, First uint64
	// Created is when the stream it stood in was made, Life counts how often that stream, or the stream before it, was lost or
	// cut short until then: the sequences of a stream that was cut short are used again.
	Created time.Time
	Life    int
	// Oldest is the version of the trajectory's oldest sampled token as the message says it; -1 is not known.
	Oldest int64
}

// Refused is a message that the rejected stream holds.
type Refused struct {
	Sequence uint64
	// Created is when the stream that it came from was.
	Created time.Time
	Reason  string
}

// Gone says that the stream was lost with the broker's store, or came back shorter, at the end of a life: from From on the
// messages that it still held are gone, which nobody can read again.
type Gone struct {
	Created time.Time
	Life    int
	From    uint64
}

// Took says whether a message is gone that was seen in a life of a stream: a message that outlived a cut of the stream may be lost at
// a later cut.
func (g Gone) Took(created time.Time, life int, sequence uint64) bool {
	return g.Created.Equal(created) && g.Life >= life && g.From <= sequence
}

// Witness is the account of an observer of the trajectory stream, taken when the run has stopped.
type Witness struct {
	Seen    []Seen
	Refused []Refused
	Gone    []Gone
	// Created and First are of the stream as it is now: First is the first sequence that it still holds. Ledger is
	// that of the checkpoint that a trainer would go on from. What the ledger has not ended and the stream still
	// holds is read again: it is pending.
	Created time.Time
	First   uint64
	Ledger  batch.Ledger
}

func (w *Witness) isPending(s Seen) bool {
	first := s.Sequence
	if s.First != 0 {
		first = s.First
	}
	if _, carried := slices.BinarySearch(w.Ledger.Carried, first); carried && s.Created.Equal(w.Created) {
		return true
	}
	_, above := slices.BinarySearch(w.Ledger.Above, first)
	return s.Created.Equal(w.Created) && first >= w.First && first > w.Ledger.Low && !above
}

// isGone says that a message was lost with the store that held it.
func (w *Witness) isGone(s Seen) bool {
	return slices.ContainsFunc(w.Gone, func(g Gone) bool { return g.Took(s.Created, s.Life, s.Sequence) })
}

// usedSequencesAgain reports whether two messages may have stood at the same place of a stream, because it was cut short. Of a refused message it is
// not known then which of the two it was.
func (w *Witness) usedSequencesAgain(created time.Time) bool {
	return slices.ContainsFunc(w.Gone, func(g Gone) bool { return g.Created.Equal(created) })
}

// place identifies a message.
type place struct {
	created  int64
	sequence uint64
}

// fate is a record's entry about a message. Baselines and samples that were passed over count as trained: their step used them up.
type fate struct {
	trained bool
	id      string
	oldest  int64
}

// fates are the fates of the messages that have stood at a place, by how often the stream had lost messages by then: a single fate at
// most where it never did.
type fates map[place]map[int64]fate

func (f fates) putFate(at place, losses int64, end fate) {
	if f[at] == nil {
		f[at] = map[int64]fate{}
	}
	f[at][losses] = end
}

// fateOf returns the fate of the trajectory id at a place; id is "" where nobody could read it. Of several messages that have
// stood there it is the fate of the message with that id.
func (f fates) fateOf(at place, id string) (fate, bool) {
	for _, end := range f[at] {
		if len(f[at]) == 1 || end.id == id {
			return end, true
		}
	}
	return fate{}, false
}

// anyTrained says whether any message that has stood at a place was used by a step.
func (f fates) anyTrained(at place) bool {
	for _, end := range f[at] {
		if end.trained {
			return true
		}
	}
	return false
}

// compareWitness accounts for every message that a witness saw.
func (r *Report) compareWitness(w *Witness, ended fates) {
	refused := map[place]bool{}
	for _, m := range w.Refused {
		at := place{m.Created.UnixNano(), m.Sequence}
		refused[at] = true
		if ended.anyTrained(at) && !w.usedSequencesAgain(m.Created) {
			r.Contradicted.addLine("sequence %d was refused (%s) and trained on", m.Sequence, m.Reason)
		}
	}
	type life struct {
		place
		life int
	}
	counted, anywhere := map[life]bool{}, map[place]bool{}
	for _, s := range w.Seen {
		own := place{s.Created.UnixNano(), s.Sequence}
		whole := place{own.created, s.First}
		if counted[life{own, s.Life}] {
			continue
		}
		counted[life{own, s.Life}], anywhere[own] = true, true
		if s.First == 0 || s.First == s.Sequence {
			r.Witnessed++
		}
		end, is := ended.fateOf(own, s.ID)
		if !is && s.First != 0 {
			end, is = ended.fateOf(whole, s.ID)
		}
		if is && (end.id != s.ID || end.trained && s.Oldest >= 0 && end.oldest != s.Oldest) && w.usedSequencesAgain(s.Created) {
			is = false // it is of another message that has stood there
		}
		switch {
		case is:
			if end.trained && s.ID != "" && (end.id != s.ID || s.Oldest >= 0 && end.oldest != s.Oldest) {
				r.Contradicted.addLine("sequence %d is %s of version %d; the record says %s of version %d",
					s.Sequence, s.ID, s.Oldest, end.id, end.oldest)
			}
		case refused[own] || s.First != 0 && refused[whole]:
		case w.isGone(s):
			r.Gone++
		case w.isPending(s):
			r.Pending++
		default:
			r.Lost.addLine("%s, sequence %d", s.ID, s.Sequence)
		}
	}
	for at, here := range ended {
		for _, end := range here {
			if end.trained && !anywhere[at] {
				r.Unwitnessed++
			}
		}
	}
}
