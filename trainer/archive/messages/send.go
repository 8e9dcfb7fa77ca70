package messages

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// sendSegments sends the segments that wait, in order, and removes segments from the remote store, until the Spool is closed.
func (s *Spool) sendSegments() {
	defer close(s.ended)
	pause := s.pause.first
	for {
		work, due, changed, done := s.nextWork()
		if done {
			return
		}
		if work == nil {
			s.awaitChange(changed, due)
			continue
		}
		err := work()
		if s.noteOutcome(err) {
			return
		}
		if err == nil {
			pause = s.pause.first
			continue
		}
		s.awaitChange(nil, pause/2+rand.N(pause))
		pause = min(2*pause, s.pause.longest)
	}
}

// awaitChange returns when something has changed, a time has passed, or the Spool is closed. A time of 0 never passes.
func (s *Spool) awaitChange(changed <-chan struct{}, after time.Duration) {
	var passed <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-changed:
	case <-passed:
	case <-s.stop:
	}
}

// nextWork returns the next call of the remote store; nil where none is due, with the time until a call is. done is whether the Spool is
// closed.
func (s *Spool) nextWork() (work func() error, due time.Duration, changed <-chan struct{}, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := len(s.removals)+len(s.waiting) == 0
	switch {
	case s.stopped, s.leaving && (idle || !s.own && s.asks == nil):
		return nil, 0, nil, true
	case s.own:
	case s.asks != nil && !idle:
		asks := s.asks
		return func() error { return s.askMark(asks) }, 0, nil, false
	default:
		return nil, 0, s.changed, false
	}
	if len(s.removals) > 0 { // first: a bucket may be full
		name := s.removals[0]
		return func() error { return s.removeSent(name) }, 0, nil, false
	}
	for _, w := range s.waiting {
		if w.held {
			continue
		}
		wait := s.cfg.Delay - time.Since(w.At)
		if s.leaving || wait <= 0 || w.Size >= wholeSegment || s.bytes > s.cfg.Bytes/2 {
			w.sending, w.again = true, false
			return func() error { return s.sendSegment(w) }, 0, nil, false
		}
		if due == 0 || wait < due {
			due = wait
		}
	}
	return nil, due, s.changed, false
}

// noteOutcome notes the outcome of a call of the remote store. It reports whether nothing more is tried: the Spool is being closed, and
// the remote store fails.
func (s *Spool) noteOutcome(err error) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.failure == nil:
		s.log.Error("the archive's bucket does not take what it is sent; it is tried again, and the spool keeps it", "folder", s.Folder.Dir,
			"segments", len(s.waiting), "bytes", s.bytes, "err", err)
	case err == nil && s.failure != nil:
		s.log.Info("the archive's bucket takes what it is sent again")
	}
	s.failure = err
	return err != nil && s.leaving
}

// sendSegment sends a segment. The folder's file goes after the remote store has confirmed the segment.
//
// Invariant: a segment leaves the spool only after the bucket has confirmed it.
func (s *Spool) sendSegment(w *waitingSegment) error {
	data, err := s.readFolder(w.Name)
	gone := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		err = s.checkMark()
	}
	if err == nil {
		err = s.remote.Put(w.Name, data)
	}
	if s.cfg.Sent != nil && !gone {
		s.cfg.Sent(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.sending = false
	if w.removed {
		if !gone {
			s.removals = append(s.removals, w.Name)
		}
		return nil
	}
	if (err == nil || gone) && w.again {
		return nil
	}
	if gone {
		s.passOver(w)
		return nil
	}
	if err == nil {
		err = s.Folder.Put(w.Name+sentEnding, strconv.AppendInt(nil, int64(len(data)), 10))
	}
	if err == nil {
		err = s.Folder.Remove(w.Name)
	}
	if err != nil {
		return fmt.Errorf("send segment %s: %w", w.Name, err)
	}
	s.dropWaiting(w)
	return nil
}

// passOver drops a segment whose file has gone from the folder: the segments behind it are sent. The lock is held.
func (s *Spool) passOver(w *waitingSegment) {
	if _, err := s.readSent(w.Name); err != nil {
		s.log.Error("a segment of the archive has gone from its spool before it was sent: its messages are lost", "folder", s.Folder.Dir,
			"segment", w.Name, "bytes", w.Size)
	}
	s.dropWaiting(w)
}

// dropWaiting drops a segment that does not wait any more. The lock is held.
func (s *Spool) dropWaiting(w *waitingSegment) {
	s.waiting = slices.DeleteFunc(s.waiting, func(x *waitingSegment) bool { return x == w })
	s.bytes -= w.Size
	s.reportWaiting()
	s.noteChange()
}

// readFolder reads a segment of the folder.
func (s *Spool) readFolder(name string) ([]byte, error) {
	blob, err := s.Folder.Open(name)
	if err != nil {
		return nil, err
	}
	data := make([]byte, blob.Size())
	_, err = blob.ReadAt(data, 0)
	return data, errors.Join(err, blob.Close())
}

// removeSent removes a segment from the remote store, unless it was stored again.
func (s *Spool) removeSent(name string) error {
	s.mu.Lock()
	_, again := s.known[name]
	s.mu.Unlock()
	if !again {
		err := s.checkMark()
		if err == nil {
			err = s.remote.Remove(name)
		}
		if err != nil {
			return fmt.Errorf("remove segment %s: %w", name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals = slices.Delete(s.removals, 0, 1)
	s.noteChange()
	return nil
}
