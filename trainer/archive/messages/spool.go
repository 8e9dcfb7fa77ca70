package messages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrSpoolFull is returned, wrapped, by Spool.Put where the spool has no room.
var ErrSpoolFull = errors.New("the spool of segments that wait for the bucket is full")

// SpoolConfig bounds a Spool.
type SpoolConfig struct {
	// Bytes bounds the segments that wait; a single larger segment is taken all the same.
	Bytes int64
	// Delay is how long a small segment waits to be joined with the next.
	Delay time.Duration
	// Wait has AwaitRoom wait; else Put fails where there is no room.
	Wait bool
	// Waiting is called with the size of the segments that wait, Sent with the outcome of each try to send a segment. Both may be nil, and are
	// called by several goroutines.
	Waiting func(bytes int64)
	Sent    func(error)
}

const (
	// sentEnding is the end of the name of a file that says that the remote store has the segment: it holds its size.
	sentEnding = ".sent"
	// wholeSegment is the size from which on a segment does not wait to be joined.
	wholeSegment = segmentBytes / 2
	// leaveAfter is how long Close tries to send the rest.
	leaveAfter = 30 * time.Second
)

// Spool is a Store that keeps a segment in a folder until a remote store has it. Put returns when the folder has the segment, synced: a
// remote store that is slow or away delays no caller until the spool is full. A segment leaves the folder after the remote store has
// confirmed it, and leaves a file behind which says so: a remote store that lists late is not believed to lack the segment, and a store
// that has lost it is found out.
type Spool struct {
	Spooled
	remote Store
	cfg    SpoolConfig
	log    *slog.Logger
	pause  pauses
	stop   chan struct{}
	ended  chan struct{}

	mu sync.Mutex
	// changed is closed, and made anew, when anything below has changed.
	changed chan struct{}
	// known are the segments that are stored in either place, by name.
	known map[string]Stored
	// waiting are the segments that the remote store lacks, oldest first, bytes their size.
	waiting []*waitingSegment
	bytes   int64
	// removals are the names to be removed from the remote store.
	removals []string
	// own is whether the remote store is known to be of the run whose segments the folder has: else nothing is sent or removed there.
	// asks is the mark to be asked of the remote store, nil where it was asked or is not known yet.
	own  bool
	asks *askedMark
	// owner is the id whose mark the remote store has where own is set.
	owner string
	// holding is whether segments are held to be joined; leaving whether everything is due at once.
	holding, leaving bool
	// failure is that of the newest try, nil after a try that succeeded.
	failure error
	stopped bool
}

// waitingSegment is a segment that the remote store lacks.
type waitingSegment struct {
	Stored
	held, sending, removed bool
	// again is whether the name was put again while the segment was on its way.
	again bool
}

// pauses are how long the Spool waits after the first failure and at most, each time about twice as long as before.
type pauses struct{ first, longest time.Duration }

// Prober is a remote store that can say whether it may be written to.
type Prober interface{ Probe() error }

// OpenSpool goes on with the segments in a folder and a remote store. Where the remote store does not answer, the files in the folder say
// which segments it has; without such files the error of the remote store is returned. Nothing is sent, and no file of the
// folder changes, before [Open] or [Spool.SendOwn]. Close the Spool: it closes the remote store too.
func OpenSpool(folder Folder, remote Store, cfg SpoolConfig, log *slog.Logger) (*Spool, error) {
	return openSpool(folder, remote, cfg, log, pauses{time.Second, time.Minute})
}

func openSpool(folder Folder, remote Store, cfg SpoolConfig, log *slog.Logger, pause pauses) (*Spool, error) {
	s := &Spool{
		Spooled: Spooled{folder, remote}, remote: remote, cfg: cfg, log: log, pause: pause, stop: make(chan struct{}), ended: make(chan struct{}),
		changed: make(chan struct{}), known: map[string]Stored{},
	}
	here, sent, err := s.listFolder()
	if err != nil {
		return nil, err
	}
	there, err := s.askRemote()
	if err != nil {
		if len(here)+len(sent) == 0 {
			return nil, err
		}
		log.Warn("the archive goes on by what its folder says of the bucket, which does not answer", "err", err)
	}
	for _, of := range slices.Concat(sent, there) {
		s.known[of.Name] = of
	}
	for _, of := range here {
		s.known[of.Name] = of
		of.At = time.Now() // it waits by the clock of this process, wherever the clock of the machine has been set since
		s.waiting = append(s.waiting, &waitingSegment{Stored: of})
		s.bytes += of.Size
	}
	slices.SortFunc(s.waiting, func(a, b *waitingSegment) int { return cmp.Compare(a.Name, b.Name) })
	s.reportWaiting()
	go s.sendSegments()
	return s, nil
}

// askRemote lists the remote store, and makes sure that it can be written to.
func (s *Spool) askRemote() ([]Stored, error) {
	there, err := s.remote.List()
	if p, ok := s.remote.(Prober); ok && err == nil {
		err = p.Probe()
	}
	return there, err
}

// listFolder lists the segments that wait, and the segments that were sent.
func (s *Spooled) listFolder() (here, sent []Stored, err error) {
	all, err := s.Folder.List()
	if err != nil {
		return nil, nil, err
	}
	for _, of := range all {
		name, isSent := strings.CutSuffix(of.Name, sentEnding)
		if _, ok := parseName(name); !ok {
			continue
		}
		if !isSent {
			here = append(here, of)
			continue
		}
		size, err := s.readSent(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		sent = append(sent, Stored{name, size, of.At})
	}
	return here, sent, nil
}

// readSent returns the size of a segment that was sent; the error is fs.ErrNotExist, wrapped, where none was.
func (s *Spooled) readSent(name string) (size int64, err error) {
	blob, err := s.Folder.Open(name + sentEnding)
	if err != nil {
		return 0, err
	}
	text := make([]byte, min(blob.Size(), 64))
	_, err = blob.ReadAt(text, 0)
	if err = errors.Join(err, blob.Close()); err != nil {
		return 0, fmt.Errorf("read %s: %w", name+sentEnding, err)
	}
	if size, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return 0, fmt.Errorf("read %s: %w", name+sentEnding, err)
	}
	return size, nil
}

// Spooled are the segments of a Spool for readers, of this process or another.
type Spooled struct {
	Folder Folder
	Remote Segments
}

// List lists both places, and the segments that were sent, whether or not the remote store lists them.
func (s Spooled) List() ([]Stored, error) {
	here, sent, err := s.listFolder()
	if err != nil {
		return nil, err
	}
	there, err := s.Remote.List()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(here, there, sent), func(of Stored) bool {
		again := seen[of.Name]
		seen[of.Name] = true
		return again
	}), nil
}

// noSuchObject is what the remote store has of a segment that it confirmed and has no more.
const noSuchObject = "no such object"

// Open opens a segment where it is. A segment that was sent and is not there any more is a *Damage.
func (s Spooled) Open(name string) (Blob, error) {
	blob, err := s.Folder.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return blob, err
	}
	blob, err = s.Remote.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if size, sentErr := s.readSent(name); sentErr == nil {
			return nil, &Damage{name, fmt.Sprintf("the %d bytes that the bucket confirmed", size), noSuchObject}
		}
	}
	return blob, err
}

// List lists the segments of both places, as they were when the Spool was opened and as it has changed them since.
func (s *Spool) List() ([]Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Stored, 0, len(s.known))
	for _, of := range s.known {
		out = append(out, of)
	}
	return out, nil
}

// noteChange wakes all that wait for a change. The lock is held.
func (s *Spool) noteChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Spool) reportWaiting() {
	if s.cfg.Waiting != nil {
		s.cfg.Waiting(s.bytes)
	}
}

// Put stores a segment in the folder.
func (s *Spool) Put(name string, data []byte) error {
	s.mu.Lock()
	room, failure := s.hasRoom(int64(len(data))), s.failure
	s.mu.Unlock()
	if errors.Is(failure, ErrOtherRun) {
		return failure
	}
	if !room {
		return errors.Join(ErrSpoolFull, failure)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Folder.Put(name, data); err != nil {
		return err
	}
	of := Stored{name, int64(len(data)), time.Now()}
	s.known[name] = of
	if at := slices.IndexFunc(s.waiting, func(w *waitingSegment) bool { return w.Name == name && !w.removed }); at >= 0 {
		s.bytes -= s.waiting[at].Size
		s.waiting[at].Stored, s.waiting[at].again = of, true
	} else {
		s.waiting = append(s.waiting, &waitingSegment{Stored: of})
	}
	s.bytes += of.Size
	s.reportWaiting()
	s.noteChange()
	return nil
}

// hasRoom reports whether the spool takes a segment of a size. A segment that takes the place of others always has room. The lock is held.
func (s *Spool) hasRoom(size int64) bool {
	return s.holding || s.bytes == 0 || s.bytes+size <= s.cfg.Bytes
}

// AwaitRoom returns when the spool has room for a segment, or ctx ends; at once where Put is to fail instead. waits may be nil; it is
// called when a wait begins, with ErrSpoolFull and why segments are not sent.
func (s *Spool) AwaitRoom(ctx context.Context, size int64, waits func(error)) error {
	for told := !s.cfg.Wait; s.cfg.Wait; told = true {
		s.mu.Lock()
		room, changed, failure := s.hasRoom(size), s.changed, s.failure
		s.mu.Unlock()
		if room || errors.Is(failure, ErrOtherRun) {
			return nil // Put refuses
		}
		if !told {
			s.log.Error("the run waits until the archive's bucket has taken segments: trainer.archive.required is set, and the spool is full",
				"folder", s.Folder.Dir, "spool_bytes", s.cfg.Bytes, "err", failure)
			if waits != nil {
				waits(errors.Join(ErrSpoolFull, failure))
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), ErrSpoolFull, failure)
		}
	}
	return nil
}

// Hold keeps segments in the folder until release is called; here is false where a segment has left it, or is on its way.
func (s *Spool) Hold(names ...string) (release func(), here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []*waitingSegment
	for _, w := range s.waiting {
		if slices.Contains(names, w.Name) && !w.sending {
			held = append(held, w)
		}
	}
	if len(held) != len(names) {
		return func() {}, false
	}
	setHeld := func(on bool) {
		for _, w := range held {
			w.held = on
		}
		s.holding = on
		s.noteChange()
	}
	setHeld(true)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		setHeld(false)
	}, true
}

// Remove removes a segment from the folder at once, and has it removed from the remote store soon.
func (s *Spool) Remove(name string) error {
	err := errors.Join(s.Folder.Remove(name), s.Folder.Remove(name+sentEnding))
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.known[name]
	delete(s.known, name)
	waited := false
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waitingSegment) bool {
		if w.Name != name {
			return false
		}
		s.bytes -= w.Size
		w.removed, waited = true, !w.sending // a segment on its way is removed when it has arrived
		return true
	})
	if known && !waited {
		s.removals = append(s.removals, name)
	}
	s.reportWaiting()
	s.noteChange()
	return err
}

// Sweep removes the rest of a Put that was cut off.
func (s *Spool) Sweep() error { return s.Folder.Sweep() }

// Close sends the segments that wait, for a while, and stops. The rest is sent when the folder is opened again.
func (s *Spool) Close() error {
	s.mu.Lock()
	s.leaving = true
	s.noteChange()
	s.mu.Unlock()
	patience := time.NewTimer(leaveAfter)
	defer patience.Stop()
	select {
	case <-s.ended:
	case <-patience.C:
	}
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
	s.mu.Unlock()
	var err error
	if c, ok := s.remote.(io.Closer); ok {
		err = c.Close()
	}
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.waiting); n > 0 {
		s.log.Warn("segments of the archive wait for the bucket; the next start of the trainer sends them", "folder", s.Folder.Dir,
			"segments", n, "bytes", s.bytes, "err", s.failure)
	}
	return err
}
