package messages

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"
)

// ErrNotKept is returned for a trajectory that no segment has.
var ErrNotKept = errors.New("no segment of the archive has it")

// readSegment calls use with an open segment.
func readSegment(store Segments, name string, use func(*segmentReader) error) (err error) {
	blob, err := store.Open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, blob.Close()) }()
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	defer decoder.Close()
	r, err := openReader(name, blob, decoder)
	if err != nil {
		return err
	}
	return use(r)
}

// isGone reports whether a segment was removed since the list was made: to make room, or because another took its place.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Find is FindMessage by the id alone: a trajectory's newest message.
func Find(store Segments, id string) (*Message, error) { return FindMessage(store, id, 0) }

// FindMessage returns the newest message with a trajectory's id and sequence number; 0 is any number. It is ErrNotKept, wrapped, where no
// segment has it, joined with a *Damage for each segment that could not be read, and ErrTwoRuns, wrapped, where two runs have the id.
func FindMessage(store Segments, id string, sequence uint64) (*Message, error) {
	if err := checkTrajectory(store, id); err != nil {
		return nil, err
	}
	vanished := map[string]bool{}
	for {
		found, gone, err := findOnce(store, id, sequence, vanished)
		if found != nil || !gone {
			return found, err
		}
		// A segment left the list meanwhile: another took its place, or it made room.
	}
}

// findOnce looks through the segments of a list. gone reports whether a segment of it was removed meanwhile, which is then among the
// vanished names: a store that lists removed segments for a while is not asked for them again and again.
func findOnce(store Segments, id string, sequence uint64, vanished map[string]bool) (found *Message, gone bool, err error) {
	segments, _, err := listSegments(store)
	if err != nil {
		return nil, false, err
	}
	var damage []error
	for _, s := range slices.Backward(segments) {
		err := readSegment(store, s.Name, func(r *segmentReader) error {
			for _, e := range slices.Backward(r.index.Entries) {
				if e.ID != id || sequence != 0 && e.Sequence != sequence {
					continue
				}
				block, err := r.readBlock(e.Block)
				if err != nil {
					return err
				}
				m := e.message(block)
				found = &m
				return nil
			}
			return nil
		})
		switch {
		case found != nil:
			return found, false, nil
		case isGone(err):
			gone = gone || !vanished[s.Name]
			vanished[s.Name] = true
		case errors.As(err, new(*Damage)):
			damage = append(damage, err)
		case err != nil:
			return nil, false, err
		}
	}
	return nil, gone, errors.Join(append([]error{fmt.Errorf("trajectory %s: %w", id, ErrNotKept)}, damage...)...)
}

// Kept is a message with the place that it had.
type Kept struct {
	Life
	Message
	// ID is that of a trajectory, "" of another message.
	ID string
}

// All are the messages of a store, oldest first, each once. A segment that is damaged is passed over: its *Damage comes with a nil message,
// and the walk goes on. Of a segment that was removed meanwhile the walk reads the segment that took its place. Any other error ends it. An
// archive of two runs has an error that wraps ErrTwoRuns in place of its first message.
func All(store Segments) iter.Seq2[*Kept, error] {
	return func(yield func(*Kept, error) bool) {
		if err := checkOneRun(store); err != nil {
			yield(nil, err)
			return
		}
		walkAll(store)(yield)
	}
}

// walkAll is All without a look at whose messages they are.
func walkAll(store Segments) iter.Seq2[*Kept, error] {
	return func(yield func(*Kept, error) bool) {
		var at place // of the last segment that was read
		vanished := map[string]bool{}
		for begun := false; ; {
			segments, _, err := listSegments(store)
			if err != nil {
				yield(nil, err)
				return
			}
			if begun {
				segments = slices.DeleteFunc(segments, func(s listed) bool { return !s.isBeyond(at) })
			}
			gone := false
			for _, s := range segments {
				err := readSegment(store, s.Name, func(r *segmentReader) error { return r.yieldMessages(at, yield) })
				if isGone(err) {
					if vanished[s.Name] {
						continue // a list that is late has it still
					}
					gone, vanished[s.Name] = true, true
					break // the list is not that of the store any more
				}
				begun, at = true, s.place
				switch {
				case err == nil:
				case errors.Is(err, errStopped):
					return
				case errors.As(err, new(*Damage)):
					if !yield(nil, err) {
						return
					}
				default:
					yield(nil, err)
					return
				}
			}
			if !gone {
				return
			}
		}
	}
}

// Newest is the last message that a store has of the stream that was made then, without its bytes; nil where it has none. A segment that is
// damaged is passed over.
func Newest(store Segments, created time.Time) (newest *Kept, err error) {
	segments, _, err := listSegments(store)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Backward(segments) {
		if s.created != created.UnixNano() {
			continue
		}
		err := readSegment(store, s.Name, func(r *segmentReader) error {
			if n := len(r.index.Entries); n > 0 {
				e := &r.index.Entries[n-1]
				newest = &Kept{r.index.Life, Message{Sequence: e.Sequence, Subject: e.Subject, At: time.Unix(0, e.Stored).UTC()}, e.ID}
			}
			return nil
		})
		if newest != nil || err != nil && !isGone(err) && !errors.As(err, new(*Damage)) {
			return newest, err
		}
	}
	return nil, nil
}

// errStopped says that a walk wants no more messages.
var errStopped = errors.New("stopped")

// yieldMessages yields the messages of a segment but those that another segment had before.
func (r *segmentReader) yieldMessages(before place, yield func(*Kept, error) bool) (err error) {
	at, block := -1, []byte(nil)
	again := before.isSameLife(r.index.placeOf(r.index.Span))
	for i := range r.index.Entries {
		e := &r.index.Entries[i]
		if again && e.Sequence <= before.Last {
			continue
		}
		if e.Block != at {
			if block, err = r.readBlock(e.Block); err != nil {
				return err
			}
			at = e.Block
		}
		if !yield(&Kept{r.index.Life, e.message(block), e.ID}, nil) {
			return errStopped
		}
	}
	return nil
}

// Verified is the result of Verify.
type Verified struct {
	Segments, Messages int
	Bytes              int64
	Damage             []*Damage
	// Notes say which messages were purged before they were kept.
	Notes []string

	last map[int64]uint64 // the highest sequence, by the stream's creation
}

// LastOf is the sequence up to which segments have messages of the stream that was made then; 0 where there is none.
func (v *Verified) LastOf(created time.Time) uint64 { return v.last[created.UnixNano()] }

// Verify reads every byte of a store's segments, and looks for segments that are missing between others. That the messages are of two runs
// is among the damage.
func Verify(store Segments) (*Verified, error) {
	segments, _, err := listSegments(store)
	if err != nil {
		return nil, err
	}
	out := &Verified{last: map[int64]uint64{}}
	for i, s := range segments {
		out.last[s.created] = max(out.last[s.created], s.Last)
		var index *Index
		err := readSegment(store, s.Name, func(r *segmentReader) error {
			index = r.index
			return r.verifySegment(s.place)
		})
		damage := (*Damage)(nil)
		switch {
		case isGone(err):
			continue
		case errors.As(err, &damage):
			out.Damage = append(out.Damage, damage)
		case err != nil:
			return nil, err
		}
		out.Segments++
		out.Bytes += s.Size
		if index == nil {
			continue
		}
		out.Messages += len(index.Entries)
		before := s.place
		before.Span = Span{index.Follows, index.Follows}
		if i > 0 && segments[i-1].isSameLife(s.place) {
			before = segments[i-1].place
		}
		out.checkNeighbours(before, index)
	}
	switch err := checkOneRun(store); {
	case errors.Is(err, ErrTwoRuns):
		out.Damage = append(out.Damage, &Damage{"all segments", "the messages of one run", err.Error()})
	case err != nil:
		return nil, err
	}
	return out, nil
}

// checkNeighbours looks for messages that are missing between a segment and the segment before, and before the first.
func (v *Verified) checkNeighbours(before place, index *Index) {
	if before.Last < index.Follows {
		gone := before
		gone.Span = Span{before.Last, index.Follows}
		v.Damage = append(v.Damage, &Damage{gone.segmentName(), "the segments of these messages, between others", "no such file"})
	}
	if index.Follows < index.After {
		v.Notes = append(v.Notes, fmt.Sprintf("messages %d to %d of the stream were purged before they were kept", index.Follows+1, index.After))
	}
}
