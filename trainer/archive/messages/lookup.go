package messages

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Name names a trajectory among a run's messages: an id may have been published more than once.
type Name struct {
	ID       string
	Sequence uint64
}

// Lookup reads single trajectories of a store, each with the block that has it alone. It is used by many goroutines at once. A segment that
// another takes the place of meanwhile is read there.
type Lookup struct {
	store Segments

	mu      sync.Mutex
	decoder *zstd.Decoder
	found   *lookedUp
	// blocks are the blocks that were read last, the newest last.
	blocks []decodedBlock
}

// lookedUp is the contents of the indexes of a store's segments.
type lookedUp struct {
	runs     []string // that the segments name, sorted
	segments []string
	blocks   [][]Block // of each segment
	order    []Name
	places   map[Name]messagePlace
	damage   []*Damage
	notes    []string
}

// messagePlace is where a message is: the numbers of its segment and of its block there, and its place within that.
type messagePlace struct {
	segment, block int
	at, size       int
	stored         int64
}

type decodedBlock struct {
	segment string
	at      int64
	data    []byte
}

// heldBlocks is how many blocks a Lookup holds: neighbours in a group are neighbours in a block.
const heldBlocks = 4

// OpenLookup reads the indexes of a store's segments; of their messages only where these may be of two runs, which is an error that wraps
// ErrTwoRuns. A segment whose index cannot be read, or that is missing
// between two others, is among Damage, and its messages are not found. Close ends it.
func OpenLookup(store Segments) (*Lookup, error) {
	l := &Lookup{store: store}
	err := checkOneRun(store)
	if err != nil {
		return nil, err
	}
	if l.found, err = lookUpAll(store); err != nil {
		return nil, err
	}
	if l.decoder, err = newDecoder(); err != nil {
		return nil, err
	}
	return l, nil
}

// Close frees the blocks. A call of Read after it fails.
func (l *Lookup) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decoder.Close()
	l.blocks = nil
}

// Names are the trajectories in the order of the stream.
func (l *Lookup) Names() iter.Seq[Name] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Values(l.found.order)
}

// Runs are the runs that the segments name, sorted.
func (l *Lookup) Runs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found.runs
}

// Damage are the segments that are damaged or missing, as far as indexes tell. Notes say which messages were purged before they were kept.
func (l *Lookup) Damage() (damage []*Damage, notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found.damage, l.found.notes
}

// Read reads a trajectory's message. The error is ErrNotKept, wrapped, where no segment has it, and a *Damage where its block is not as it
// was written.
func (l *Lookup) Read(n Name) (*Message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, err := l.readMessage(n)
	if !isGone(err) {
		return m, err
	}
	// Its segment left the store: another took its place, or it made room.
	found, err := lookUpAll(l.store)
	if err != nil {
		return nil, err
	}
	l.found = found
	if m, err = l.readMessage(n); isGone(err) {
		err = fmt.Errorf("trajectory %s: %w", n.ID, ErrNotKept)
	}
	return m, err
}

// readMessage reads a message where the newest indexes have it.
func (l *Lookup) readMessage(n Name) (*Message, error) {
	p, ok := l.found.places[n]
	if !ok {
		return nil, fmt.Errorf("trajectory %s: %w", n.ID, ErrNotKept)
	}
	data, err := l.readBlock(l.found.segments[p.segment], l.found.blocks[p.segment], p.block)
	if err != nil {
		return nil, err
	}
	return &Message{Sequence: n.Sequence, At: time.Unix(0, p.stored).UTC(), Data: data[p.at : p.at+p.size]}, nil
}

// readBlock reads a block of a segment, of all its blocks, or takes it from the blocks that were read last.
func (l *Lookup) readBlock(segment string, blocks []Block, number int) (data []byte, err error) {
	b := blocks[number]
	for _, held := range l.blocks {
		if held.segment == segment && held.at == b.At {
			return held.data, nil
		}
	}
	blob, err := l.store.Open(segment)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", segment, err)
	}
	defer func() { err = errors.Join(err, blob.Close()) }()
	r := &segmentReader{name: segment, blob: blob, index: &Index{Blocks: blocks}, decoder: l.decoder}
	if end := b.At + b.Size; end > blob.Size() {
		return nil, r.damageOf(fmt.Sprintf("block %d up to %d", number, end), "%d bytes", blob.Size())
	}
	if data, err = r.readBlock(number); err != nil {
		return nil, err
	}
	if len(l.blocks) == heldBlocks {
		l.blocks = slices.Delete(l.blocks, 0, 1)
	}
	l.blocks = append(l.blocks, decodedBlock{segment, b.At, data})
	return data, nil
}

// lookUpAll reads the indexes of all segments, until none of them left the list meanwhile.
func lookUpAll(store Segments) (*lookedUp, error) {
	vanished := map[string]bool{}
	for {
		found, gone, err := lookUpOnce(store, vanished)
		if err != nil || !gone {
			return found, err
		}
	}
}

// lookUpOnce reads the indexes of the segments of a list. gone is as that of findOnce.
func lookUpOnce(store Segments, vanished map[string]bool) (out *lookedUp, gone bool, err error) {
	segments, _, err := listSegments(store)
	if err != nil {
		return nil, false, err
	}
	out = &lookedUp{places: map[Name]messagePlace{}}
	gaps, last := new(Verified), -1
	for i, s := range segments {
		err := readSegment(store, s.Name, func(r *segmentReader) error {
			if have := r.index.placeOf(r.index.Span); have != s.place {
				return r.damageOf("an index of "+s.Name, "that of %s", have.segmentName())
			}
			seen := uint64(0)
			if last >= 0 && segments[last].isSameLife(s.place) {
				seen = segments[last].Last
				gaps.checkNeighbours(segments[last].place, r.index)
			}
			last = i
			out.addIndex(r, seen)
			return nil
		})
		damage := (*Damage)(nil)
		switch {
		case isGone(err):
			gone = gone || !vanished[s.Name]
			vanished[s.Name] = true
		case errors.As(err, &damage):
			out.damage = append(out.damage, damage)
			last = -1 // its messages are named already
		case err != nil:
			return nil, false, err
		}
	}
	out.damage, out.notes = append(out.damage, gaps.Damage...), gaps.Notes
	slices.Sort(out.runs)
	out.runs = slices.Compact(out.runs)
	return out, gone, nil
}

// addIndex adds the trajectories of a segment behind a sequence.
func (f *lookedUp) addIndex(r *segmentReader, behind uint64) {
	f.runs = append(f.runs, r.index.Run)
	f.segments, f.blocks = append(f.segments, r.name), append(f.blocks, r.index.Blocks)
	for i := range r.index.Entries {
		e := &r.index.Entries[i]
		n := Name{e.ID, e.Sequence}
		if _, twice := f.places[n]; e.ID == "" || e.Sequence <= behind || twice {
			continue
		}
		f.order = append(f.order, n)
		f.places[n] = messagePlace{len(f.segments) - 1, e.Block, e.At, e.Size, e.Stored}
	}
}
