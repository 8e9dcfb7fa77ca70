package messages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Source is the stream that an archive keeps the messages of.
type Source interface {
	// ReadStored reads the messages above after, up to upTo or somewhat further where upTo cuts a message in parts; it may stop after a
	// number of bytes. The returned span begins above after where the stream has purged what was there, and is empty where nothing is left
	// up to upTo.
	ReadStored(ctx context.Context, after, upTo uint64, bytes int) (Span, []Message, error)
}

const (
	// segmentBytes is how many bytes of messages are read for a segment, and up to which size two segments are joined.
	segmentBytes = 16 << 20
	// segmentsAtLeast is how many segments the bound on bytes has room for.
	segmentsAtLeast = 8
)

// ErrNotWritten is returned, wrapped, when the store did not take a segment, as on a full disk.
var ErrNotWritten = errors.New("the archive of messages cannot be written")

// ErrOtherRun is returned, wrapped, where a folder or a bucket's prefix has the messages of another run.
var ErrOtherRun = errors.New("the archive has the messages of another run")

// Archive keeps the messages of one life of a stream in a store, beside those of earlier ones. A single goroutine calls it.
type Archive struct {
	// Waits, where it is set, is called when Keep begins to wait for room in the store, with why there is none as far as that is known.
	Waits func(error)

	store   Store
	cfg     Config
	owner   Owner
	life    Life
	log     *slog.Logger
	encoder *zstd.Encoder
	now     func() time.Time
	// streams are the streams that are known to be the run's, by when they were made.
	streams map[int64]bool
	// segments are those of the store, in order; last is the sequence up to which messages are kept.
	segments []listed
	last     uint64
	// gaps are the spans that the stream did not have any more when they were to be kept, as far as the segments tell.
	gaps []Span
	// doubtful is whether a write has failed: the store may have the segment all the same.
	doubtful bool
}

// Open goes on with the segments in a store, or fails with ErrOtherRun, wrapped, where they are another run's. Nothing of another run is
// changed.
func Open(store Store, cfg Config, owner Owner, life Life, log *slog.Logger) (*Archive, error) {
	a := &Archive{store: store, cfg: cfg, owner: owner, life: life, log: log, now: time.Now}
	a.streams = map[int64]bool{life.Created.UnixNano(): true}
	var err error
	if a.segments, _, err = listSegments(store); err != nil {
		return nil, err
	}
	if err := errors.Join(a.checkRun(), a.checkOwner()); err != nil {
		return nil, err
	}
	if err := errors.Join(a.findStreams(), a.readStore()); err != nil {
		return nil, err
	}
	a.encoder, err = newEncoder()
	return a, err
}

// readStore finds out what the store holds, and removes what a write that was cut off has left.
func (a *Archive) readStore() error {
	if err := a.store.Sweep(); err != nil {
		return err
	}
	segments, covered, err := listSegments(a.store)
	if err != nil {
		return err
	}
	for _, s := range covered {
		if !a.isOwn(s) {
			continue
		}
		if err := a.store.Remove(s.Name); err != nil {
			return fmt.Errorf("remove segment %s, whose messages another has: %w", s.Name, err)
		}
	}
	segments = a.dropMoved(segments)
	a.segments, a.last, a.doubtful, a.gaps = segments, 0, false, nil
	begun := false
	for i, s := range segments {
		if !s.isSameLife(a.life.placeOf(s.Span)) {
			continue
		}
		if follows := a.last; !begun || follows < s.After {
			if !begun {
				follows = a.readFollows(segments[i])
			}
			if follows < s.After {
				a.gaps = append(a.gaps, Span{follows, s.After})
			}
		}
		begun, a.last = true, max(a.last, s.Last)
	}
	return nil
}

// dropMoved leaves out the newest segments of the life that the store knows of and has no more, as where they were moved elsewhere: their
// messages are not kept here.
func (a *Archive) dropMoved(segments []listed) []listed {
	for i, s := range slices.Backward(segments) {
		if !s.isSameLife(a.life.placeOf(s.Span)) {
			continue
		}
		blob, err := a.store.Open(s.Name)
		if err == nil {
			_ = blob.Close() // nothing was read
			break
		}
		if damage, ok := errors.AsType[*Damage](err); !ok || damage.Have != noSuchObject {
			break // as far as its name tells
		}
		a.log.Error("a segment of the archive that the bucket confirmed is not there: its messages are kept again where the stream has them",
			"segment", s.Name)
		segments = slices.Concat(segments[:i], segments[i+1:])
	}
	return segments
}

// readFollows returns the sequence up to which messages were kept before the first segment of the life: the messages between are a gap,
// while older segments have made room. A segment that cannot be read, which weir audit --verify names, follows the messages before it.
func (a *Archive) readFollows(first listed) uint64 {
	follows := first.After
	if first.After == 0 {
		return 0
	}
	err := readSegment(a.store, first.Name, func(r *segmentReader) error {
		follows = r.index.Follows
		return nil
	})
	if err != nil {
		a.log.Warn("whether messages are missing before the archive's first segment is not known", "segment", first.Name, "err", err)
	}
	return follows
}

// checkRun refuses a folder with the messages of a run of another name. In a bucket the run's name is part of every object's.
func (a *Archive) checkRun() error {
	if a.cfg.InBucket() || len(a.segments) == 0 {
		return nil
	}
	newest, of := a.segments[len(a.segments)-1], ""
	err := readSegment(a.store, newest.Name, func(r *segmentReader) error {
		of = r.index.Run
		return nil
	})
	if err == nil && of != a.owner.Run { // a damaged segment is named by weir audit --verify
		return fmt.Errorf("%w: %s is of run %q, this is run %q: name another folder with trainer.archive.messages.dir",
			ErrOtherRun, newest.Name, of, a.owner.Run)
	}
	return nil
}

// Last is the sequence up to which the messages of the stream are kept.
func (a *Archive) Last() uint64 { return a.last }

// Keep keeps the messages up to a sequence: when it returns they are on the disk. Messages that the stream does not have any more are
// counted as lost; after an error the next call goes on where the failed one was.
func (a *Archive) Keep(ctx context.Context, from Source, upTo uint64) (lost uint64, err error) {
	if a.doubtful {
		if err := a.readStore(); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
	}
	for a.last < upTo {
		span, messages, err := from.ReadStored(ctx, a.last, upTo, min(segmentBytes, int(a.cfg.Bytes/segmentsAtLeast)))
		if err != nil {
			return lost, fmt.Errorf("read the messages after %d to keep them: %w", a.last, err)
		}
		if span.After < a.last || span.Last < span.After {
			return lost, fmt.Errorf("read the messages after %d to keep them: got those of %d to %d", a.last, span.After+1, span.Last)
		}
		if span.Last == span.After { // nothing is left: the next segment begins with the gap, and counts it
			return lost, nil
		}
		if a.last == 0 && a.hasEarlier(span.After) {
			a.last = span.After // they were kept before the stream lost messages
		}
		if span.After > a.last {
			lost += span.After - a.last
			a.gaps = append(a.gaps, Span{a.last, span.After})
		}
		if err := a.addSegment(ctx, span, messages); err != nil {
			return lost, fmt.Errorf("%w: messages %d to %d: %w", ErrNotWritten, span.After+1, span.Last, err)
		}
	}
	a.tidySegments()
	return lost, nil
}

// hasEarlier reports whether the archive has messages up to a sequence from before the stream last lost messages.
func (a *Archive) hasEarlier(upTo uint64) bool {
	return slices.ContainsFunc(a.segments, func(s listed) bool {
		return s.created == a.life.Created.UnixNano() && s.losses < a.life.Losses && s.Last >= upTo
	})
}

// Gaps are the messages up to Last that had left the stream before they were kept, oldest first.
func (a *Archive) Gaps() []Span { return slices.Clone(a.gaps) }

// Lacks reports whether a message left the stream before it was kept, as far as the segments tell.
func (a *Archive) Lacks(sequence uint64) bool {
	return sequence > a.last || slices.ContainsFunc(a.gaps, func(s Span) bool { return s.After < sequence && sequence <= s.Last })
}

// addSegment writes a segment.
func (a *Archive) addSegment(ctx context.Context, span Span, messages []Message) error {
	w := segmentWriter{encoder: a.encoder}
	w.index = Index{Run: a.owner.Run, Owner: a.owner.ID, Life: a.life, Span: span, Follows: a.last}
	for _, m := range messages {
		w.addMessage(m)
	}
	data, err := w.finishSegment()
	if err != nil {
		return err
	}
	if store, ok := a.store.(awaiter); ok {
		if err := store.AwaitRoom(ctx, int64(len(data)), a.Waits); err != nil {
			return err
		}
	}
	if err := a.putSegment(span, data); err != nil {
		return err
	}
	a.last = span.Last
	return nil
}

// awaiter is a Store that may have no room for a while.
type awaiter interface {
	AwaitRoom(ctx context.Context, size int64, waits func(error)) error
}

func (a *Archive) putSegment(span Span, data []byte) error {
	p := a.life.placeOf(span)
	if err := a.store.Put(p.segmentName(), data); err != nil {
		a.doubtful = true
		return err
	}
	a.segments = append(a.segments, listed{p, Stored{p.segmentName(), int64(len(data)), a.now()}})
	return nil
}

// tidySegments joins small segments and removes old ones. The messages are kept already, so that a failure is logged alone.
func (a *Archive) tidySegments() {
	for {
		joined, err := a.joinNewest()
		if err != nil {
			a.log.Warn("small segments of the archive are not joined", "err", err)
		}
		if !joined || err != nil {
			break
		}
	}
	if err := a.dropOldest(); err != nil {
		a.log.Warn("the archive is larger or older than its bounds", "err", err)
	}
}

// joinNewest puts one segment in the place of the newest two, where they are neighbours of about one size.
func (a *Archive) joinNewest() (joined bool, err error) {
	n := len(a.segments)
	if n < 2 {
		return false, nil
	}
	x, y := a.segments[n-2], a.segments[n-1]
	bound := min(segmentBytes, a.cfg.Bytes/segmentsAtLeast)
	if !a.isOwn(y) || !x.isSameLife(y.place) || x.Last != y.After || x.Size >= 2*y.Size || x.Size+y.Size > bound {
		return false, nil
	}
	release, here := holdSegments(a.store, x.Name, y.Name)
	if !here {
		return false, nil
	}
	defer release()
	span := Span{x.After, y.Last}
	data, err := a.joinSegments(x, y)
	if damage := (*Damage)(nil); errors.As(err, &damage) {
		return false, nil // weir audit --verify names it
	}
	if err != nil {
		return false, err
	}
	if err := a.putSegment(span, data); err != nil {
		return false, err
	}
	a.segments = slices.Delete(a.segments, n-2, n)
	// Readers count the joined segment alone from here on.
	err = errors.Join(a.store.Remove(x.Name), a.store.Remove(y.Name))
	a.doubtful = err != nil
	return true, err
}

// holder is a Store that moves segments elsewhere after a while, from where they are not worth joining.
type holder interface {
	// Hold keeps segments where they are until release is called; here is false where a segment has left, or is on its way.
	Hold(names ...string) (release func(), here bool)
}

func holdSegments(store Store, names ...string) (release func(), here bool) {
	if h, ok := store.(holder); ok {
		return h.Hold(names...)
	}
	return func() {}, true
}

// joinSegments returns the segment of the messages of two neighbours. Blocks stay as they are.
func (a *Archive) joinSegments(parts ...listed) ([]byte, error) {
	w := segmentWriter{encoder: a.encoder, out: []byte(magicBegin)}
	for i, part := range parts {
		err := readSegment(a.store, part.Name, func(r *segmentReader) error {
			if err := r.verifySegment(part.place); err != nil {
				return err
			}
			if i == 0 {
				w.index = Index{
					Run: r.index.Run, Owner: cmp.Or(r.index.Owner, a.owner.ID), Life: r.index.Life, Span: r.index.Span, Follows: r.index.Follows,
				}
			}
			w.index.Last = r.index.Last
			before := len(w.index.Blocks)
			for n, b := range r.index.Blocks {
				frame, err := r.readFrame(n)
				if err != nil {
					return err
				}
				w.addBlock(frame, b.Raw)
			}
			for _, e := range r.index.Entries {
				e.Block += before
				w.index.Entries = append(w.index.Entries, e)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return w.finishSegment()
}

// dropOldest removes the run's oldest segments until the rest of them is within the bounds. The newest stays, and so does each segment of a
// stream that is not known to be the run's.
func (a *Archive) dropOldest() error {
	bytes, own := int64(0), 0
	for _, s := range a.segments {
		if a.isOwn(s) {
			bytes += s.Size
			own++
		}
	}
	for ; own > 1; own-- {
		at := slices.IndexFunc(a.segments, a.isOwn)
		oldest := a.segments[at]
		if bytes <= a.cfg.Bytes && (a.cfg.Age == 0 || a.now().Sub(oldest.At) <= a.cfg.Age) {
			return nil
		}
		if err := a.store.Remove(oldest.Name); err != nil {
			a.doubtful = true
			return fmt.Errorf("remove the archive's oldest segment: %w", err)
		}
		bytes -= oldest.Size
		a.segments = slices.Delete(a.segments, at, at+1)
	}
	return nil
}

// Close frees memory.
func (a *Archive) Close() error { return a.encoder.Close() }
