package messages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Life is a stream between two losses of messages: within it a sequence names one message.
type Life struct {
	// Created is when the stream was made, Losses how often it has lost messages since.
	Created time.Time `json:"created"`
	Losses  int64     `json:"losses"`
}

// Span is the range of sequences of a segment: those above After, up to Last.
type Span struct {
	After uint64 `json:"after"`
	Last  uint64 `json:"last"`
}

// place is a segment as its name has it.
type place struct {
	created int64
	losses  int64
	Span
}

func (l Life) placeOf(s Span) place { return place{l.Created.UnixNano(), l.Losses, s} }

const nameEnding = ".seg"

// segmentName returns the name of a segment. Names in order are segments in order.
func (p place) segmentName() string {
	return fmt.Sprintf("%016x-%06d-%020d-%020d%s", uint64(p.created), p.losses, p.After+1, p.Last, nameEnding)
}

// parseName is the inverse; ok is false for a name that is not a segment's.
func parseName(name string) (p place, ok bool) {
	text, ok := strings.CutSuffix(name, nameEnding)
	if !ok {
		return place{}, false
	}
	var created uint64
	n, err := fmt.Sscanf(text, "%016x-%06d-%020d-%020d", &created, &p.losses, &p.After, &p.Last)
	if n != 4 || err != nil || p.After == 0 || p.After > p.Last || p.losses < 0 {
		return place{}, false
	}
	p.created = int64(created)
	p.After--
	return p, p.segmentName() == name
}

// isSameLife reports whether two segments are of one stream between two losses.
func (p place) isSameLife(q place) bool { return p.created == q.created && p.losses == q.losses }

// covers reports whether a segment has every message of another.
func (p place) covers(q place) bool { return p.isSameLife(q) && p.After <= q.After && q.Last <= p.Last }

// isBeyond reports whether a segment has messages after those of another and of the segments before it.
func (p place) isBeyond(q place) bool {
	return cmp.Or(cmp.Compare(p.created, q.created), cmp.Compare(p.losses, q.losses), cmp.Compare(p.Last, q.Last)) > 0
}

// listed is a segment in the list of a store.
type listed struct {
	place
	Stored
}

// listSegments returns a store's segments in order, and the segments that others cover, which a crash left behind.
func listSegments(store Segments) (segments, covered []listed, err error) {
	all, err := store.List()
	if err != nil {
		return nil, nil, fmt.Errorf("list the archive's segments: %w", err)
	}
	for _, s := range all {
		if p, ok := parseName(s.Name); ok {
			segments = append(segments, listed{p, s})
		}
	}
	slices.SortFunc(segments, func(a, b listed) int {
		// Of two that begin together the larger comes first.
		return cmp.Or(
			cmp.Compare(a.created, b.created), cmp.Compare(a.losses, b.losses), cmp.Compare(a.After, b.After), cmp.Compare(b.Last, a.Last),
		)
	})
	kept := segments[:0]
	for _, s := range segments {
		if n := len(kept); n > 0 && kept[n-1].covers(s.place) {
			covered = append(covered, s)
			continue
		}
		kept = append(kept, s)
	}
	return kept, covered, nil
}
