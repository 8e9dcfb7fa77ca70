package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-rl/weir/trainer/batch"
)

// Seen is one message that a witness saw stored in the trajectory stream.
type Seen struct {
	// ID is the trajectory's; "" where the witness could not read one.
	ID string
	// Sequence is the message's, First that of the first part of the message that it is a part of; 0 where it is
	// whole.
	Sequence, First uint64
	// Created is when the stream it stood in was.
	Created time.Time
	// Oldest is the version of the trajectory's oldest sampled token as the message says it; -1 is not known.
	Oldest int64
}

// Refused is one message that the rejected stream holds.
type Refused struct {
	Sequence uint64
	// Created is when the stream that it came from was.
	Created time.Time
	Reason  string
}

// Witness is what somebody beside the trainer knows of the trajectory stream when the run has stopped.
type Witness struct {
	Seen    []Seen
	Refused []Refused
	// Created and First are of the stream as it is now: First is the first sequence that it still holds. Ledger is
	// that of the checkpoint that a trainer would go on from. What the ledger has not ended and the stream still
	// holds is read again: it is pending.
	Created time.Time
	First   uint64
	Ledger  batch.Ledger
}

func (w *Witness) pending(s Seen) bool {
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

// witnessed accounts for every message that a witness saw.
func (r *Report) witnessed(w *Witness, ended map[place]fate) {
	refused := map[place]bool{}
	for _, m := range w.Refused {
		at := place{m.Created.UnixNano(), m.Sequence}
		refused[at] = true
		if ended[at].trained {
			r.Contradicted = append(r.Contradicted, fmt.Sprintf("sequence %d was refused (%s) and trained on", m.Sequence, m.Reason))
		}
	}
	counted := map[place]bool{}
	for _, s := range w.Seen {
		own := place{s.Created.UnixNano(), s.Sequence}
		whole := place{own.created, s.First}
		if counted[own] {
			continue
		}
		counted[own] = true
		if s.First == 0 || s.First == s.Sequence {
			r.Witnessed++
		}
		end, is := ended[own]
		if !is && s.First != 0 {
			end, is = ended[whole]
		}
		switch {
		case is:
			if end.trained && s.ID != "" && (end.id != s.ID || s.Oldest >= 0 && end.oldest != s.Oldest) {
				r.Contradicted = append(r.Contradicted, fmt.Sprintf("sequence %d is %s of version %d; the record says %s of version %d",
					s.Sequence, s.ID, s.Oldest, end.id, end.oldest))
			}
		case refused[own] || s.First != 0 && refused[whole]:
		case w.pending(s):
			r.Pending++
		default:
			r.Lost = append(r.Lost, fmt.Sprintf("%s, sequence %d", s.ID, s.Sequence))
		}
	}
	for at, end := range ended {
		if end.trained && !counted[at] {
			r.Unwitnessed++
		}
	}
}
